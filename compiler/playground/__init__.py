"""One page in the browser: a function in the text notation, and everything that is derived of it.

`server` answers the page's requests, each of which `processes` runs in a process of its own under
limits; `requests` says what each does.
"""
