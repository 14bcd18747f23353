"""What people look at: pictures in a terminal, plots, reports.

It draws what others have measured: no stream, plan or file of results is made here.
"""
