"""Tabs of the page, one module each; see `app.page` for their contract."""
