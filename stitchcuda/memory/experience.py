"""Groups lessons with the same key: how often the strategy worked, what it saved, and how far to trust it.

An experience is computed from its lessons whenever it is needed and never stored, so two writers cannot corrupt one.

Weight, from 0 to 1, of g acceptances in n lessons, where h of m timed lessons kept their promise:

    (g + 1) / (n + 2)  ·  (1 + (h + 1) / (m + 2)) / 2

The first factor is Laplace's rule of succession; an acceptance that was not timed counts UNTIMED in g and in n, since only its
correctness is known. A promise is kept where the lesson was accepted and the saving was within a factor of WITHIN of the
prediction. A refutation therefore always lowers the weight, and predictions that hold raise it.

Where to look next: `memory/lesson.py` (the key), `memory/similarity.py`, `memory/lesson_text.py` (shows experiences).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from stitchcuda.memory.lesson import Lesson, Situation, unique_lessons
from stitchcuda.memory.similarity import similarity
from stitchcuda.state import Record

UNTIMED = 0.5
WITHIN = 2.0
LEAST = 0.1                                # similarity below which an experience is not recalled


class Experience(Record):
    """All lessons with one key (at least one), ordered by id."""

    key: str
    lessons: tuple[Lesson, ...]

    @property
    def accepted(self) -> int:
        return sum(lesson.outcome == "accepted" for lesson in self.lessons)

    @property
    def weight(self) -> float:
        """How far to trust it, from 0 to 1, by the formula in the module's docstring."""
        tried = sum(_evidence_weight(lesson) for lesson in self.lessons)
        worked = sum(_evidence_weight(lesson) for lesson in self.lessons if lesson.outcome == "accepted")
        timed = [lesson for lesson in self.lessons if lesson.saving_ms is not None and lesson.predicted_ms > 0]
        held = sum(promise_kept(lesson) for lesson in timed)
        return (worked + 1) / (tried + 2) * (1 + (held + 1) / (len(timed) + 2)) / 2

    @property
    def best(self) -> Lesson:
        """The lesson that is shown for all: an accepted one first, then a timed one, then the largest saving."""
        return max(self.lessons, key=lambda lesson: (lesson.outcome == "accepted", *_measured_saving(lesson), lesson.id))

    @property
    def predicted_ms(self) -> float:
        """Median of the predicted savings."""
        return median(lesson.predicted_ms for lesson in self.lessons)

    @property
    def saving_ms(self) -> float | None:
        """Median of the measured savings; None where nothing was timed."""
        found = [lesson.saving_ms for lesson in self.lessons if lesson.saving_ms is not None]
        return median(found) if found else None

    @property
    def interval_ms(self) -> tuple[float, float] | None:
        """From the lowest to the highest bound of all 95 % intervals; None where there is none."""
        lows = [lesson.saving_low_ms for lesson in self.lessons if lesson.saving_low_ms is not None]
        highs = [lesson.saving_high_ms for lesson in self.lessons if lesson.saving_high_ms is not None]
        return (min(lows), max(highs)) if lows and highs else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons of refuted lessons, the most frequent first."""
        counted = Counter(lesson.reason for lesson in self.lessons if lesson.outcome == "refuted" and lesson.reason)
        return tuple(sorted(counted, key=lambda reason: (-counted[reason], reason)))


class SimilarExperience(Record):
    """An experience and how well it fits a given situation."""

    experience: Experience
    similarity: float                      # 0 to 1
    score: float                           # similarity times weight


def group_by_key(lessons: Iterable[Lesson]) -> tuple[Experience, ...]:
    """Groups lessons by key; those with the highest weight come first."""
    by_key: dict[str, list[Lesson]] = {}
    for lesson in unique_lessons(lessons):
        by_key.setdefault(lesson.key, []).append(lesson)
    found = [Experience(key=key, lessons=tuple(same)) for key, same in by_key.items()]
    return tuple(sorted(found, key=lambda experience: (-experience.weight, experience.key)))


def find_similar(experiences: Iterable[Experience], situation: Situation, limit: int = 5) -> tuple[SimilarExperience, ...]:
    """Returns the experiences with the highest similarity times weight, at most `limit`; none with a similarity below LEAST."""
    found = []
    for experience in experiences:
        alike = max(similarity(situation, lesson.situation) for lesson in experience.lessons)
        if alike >= LEAST:
            found.append(SimilarExperience(experience=experience, similarity=alike, score=alike * experience.weight))
    found.sort(key=lambda recalled: (-recalled.score, recalled.experience.key))
    return tuple(found[:limit])


def promise_kept(lesson: Lesson) -> bool:
    """Whether a lesson was accepted and saved what was predicted, within a factor of WITHIN either way."""
    if lesson.outcome != "accepted" or lesson.saving_ms is None:
        return False
    return lesson.predicted_ms / WITHIN <= lesson.saving_ms <= lesson.predicted_ms * WITHIN


def _evidence_weight(lesson: Lesson) -> float:
    return UNTIMED if lesson.outcome == "accepted" and lesson.saving_ms is None else 1.0


def _measured_saving(lesson: Lesson) -> tuple[bool, float]:
    return lesson.saving_ms is not None, lesson.saving_ms or 0.0
