"""Rewrites operators of the captured graph in other forms that are as exact and run faster.

A template replaces nodes by other nodes of torch's operators, before the graph is cut into regions. So what it adds is fused
with its neighbours, costed, printed and verified like everything else.

    compiler/templates/rewriting.py       names the templates and applies one
    compiler/templates/split_products.py  an fp32 product as one of fp16 with three times the length
    compiler/templates/channels_last.py   convolutions, and what lies between them, in channels-last order
    compiler/templates/graph_writer.py    makes the new nodes
"""
