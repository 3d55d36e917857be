"""Which training runs there are, and what their logs say."""

from fastapi import APIRouter, Response

from app.lab import Lab
from app.routes.asking import Answer


def routes(lab: Lab) -> APIRouter:
    """Addresses under api/runs."""
    router = APIRouter(prefix="/api/runs", include_in_schema=False)

    @router.get("")
    def names() -> Answer:
        return {"runs": [{"name": run.name, "title": run.title} for run in lab.runs.all().values()]}

    @router.get("/{name}", response_model=None)
    def told(name: str, version: str = "") -> Answer | Response:
        """Nothing (204) while the run is still at `version`."""
        found = lab.runs.told(name)
        return Response(status_code=204) if found["version"] == version else found

    return router
