"""What the guide and the claims say of a comparison, as records: what wandb shows as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posbuild.guide.claims import claims
from posbuild.guide.guide import Advice, advice

Content = dict[str, Any]


def told(comparison: Content, study: Path) -> dict[str, list[Content]]:
    """A record for each scenario and for each claim (for each budget, where it depends on one).

    study  the folder of the comparison, for commands that measure its runs again
    """
    return {
        "guide": [_answers(each) for each in advice(comparison, study=study)],
        "claims": [
            {
                "claim": each.sentence,
                "budget": each.budget,
                "verdict": each.verdict,
                "numbers": each.reason,
                "source": each.source,
            }
            for each in claims(comparison)
        ],
    }


def _answers(found: Advice) -> Content:
    assert found.measured is not None, "a comparison was given"
    return {
        "scenario": found.scenario.name,
        "title": found.scenario.title,
        "published": found.published.choice,
        "published_reason": found.published.reason,
        "published_rows": _rows(found),
        "measured": found.measured.choice,
        "measured_reason": found.measured.reason,
        "confidence": found.measured.confidence,
        "scope": found.measured.scope,
        "next_study_is": found.why,
        "next_study": found.command,
    }


def _rows(found: Advice) -> str:
    """The published tables that the answer rests on, with the columns read there."""
    situation = found.scenario.situation
    read = [reading.narrowed(situation.lengths) for reading in found.scenario.rests_on]
    cited = [each for each in read if any(each.table.citation in line for line in found.published.numbers)]
    return "; ".join(f"{reading.table.id}: {', '.join(map(str, reading.at))}" for reading in cited)
