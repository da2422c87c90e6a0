"""Engineers that work with tools until they say that they are done: coding agents in a workbench, and the ReAct engineer.

Where to look next: `engineers/agents/tools.py` (what an agent can call), `engineers/agents/agent_engineer.py` (the engineer).
"""
