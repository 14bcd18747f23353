"""The page of a deployment, and what others may scrape of it: the extra `meander[dashboard]`.

    driver's books ──look──► Snapshot ──sections──► JSON, by section ──server-sent events──► the page
                       └──── Course (what changes over time, rescales) ──┘         └──► /metrics

Everything on the page follows from `Snapshot`s (`snapshot`), by pure functions (`course`, `sections`,
`rescales`); one thread takes them (`feed`). The rest is doors: who may come in (`doors`), what is
answered (`server`), states by key (`states`), figures for Prometheus (`metrics`), a small view for
notebooks (`notebook`), spans of rescales (`traces`, another extra). The page itself is in `static/`:
no file of it comes from elsewhere.

Nothing below imports this package: a deployment that wants it loads it by name.
"""
