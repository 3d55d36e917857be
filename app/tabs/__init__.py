"""Tabs of the page, one module each; see `app.shared` for their contract."""
