"""Writes the report of a session as one HTML file that opens offline, and a page that compares two sessions.

It reads records and writes text; it runs nothing, changes nothing in a workspace and judges nothing. Every figure states what
it rests on, and a time that was not measured is called a prediction.

Where to look next: `report/gathering.py` (what is read), `report/page.py` (what is written), `cli/report.py` (the command).
"""
