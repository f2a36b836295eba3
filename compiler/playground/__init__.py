"""The playground: a page in the browser that derives a function in the text notation.

`server` receives the page's requests, `processes` runs each in a process of its own under limits,
and `requests` answers them.
"""
