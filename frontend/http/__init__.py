"""Models over HTTP: OpenAI's endpoints, figures for Prometheus, and a page to talk with a model and watch it work.

`serve.py` starts it for the daemon, `application.py` makes the whole of it, `operations.py` lists the endpoints,
`models.py` says what it needs of the models behind it. A request passes through `connections/`, `requests/`,
`endpoints/` and `answers/`. All but `options.py` needs the extra `penstock[http]`.
"""
