"""Lessons that repeat each other, put together: how often it worked, what it saved, and how far to trust it.

Nothing is stored of this: an experience is made anew from its lessons, so two writers cannot spoil one. It does not know where
lessons lie (`memory/__init__.py`) nor how they are told (`memory/lesson_text.py`).

Weight, from 0 to 1, of g acceptances in n lessons, h of which kept their promise of m that were timed:

    (g + 1) / (n + 2)  ·  (1 + (h + 1) / (m + 2)) / 2

The first factor is Laplace's rule of succession; an acceptance that nobody timed counts half in g and in n, since only its
correctness is known. A promise is kept where the lesson was accepted and the saving lay within a factor of two of the
prediction. So a lesson that is refuted always loses weight, and one whose predictions hold gains it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from stitchcuda.memory.lesson import Lesson, Situation, each_once
from stitchcuda.memory.similarity import similarity
from stitchcuda.state import Record

UNTIMED = 0.5
WITHIN = 2.0
LEAST = 0.1                                # of similarity: what is less alike is no help


class Experience(Record):
    """All lessons with one key, at least one, by id."""

    key: str
    lessons: tuple[Lesson, ...]

    @property
    def accepted(self) -> int:
        return sum(lesson.outcome == "accepted" for lesson in self.lessons)

    @property
    def weight(self) -> float:
        """See above."""
        tried = sum(_counts(lesson) for lesson in self.lessons)
        worked = sum(_counts(lesson) for lesson in self.lessons if lesson.outcome == "accepted")
        timed = [lesson for lesson in self.lessons if lesson.saving_ms is not None and lesson.predicted_ms > 0]
        held = sum(promise_kept(lesson) for lesson in timed)
        return (worked + 1) / (tried + 2) * (1 + (held + 1) / (len(timed) + 2)) / 2

    @property
    def best(self) -> Lesson:
        """The lesson that speaks for all: accepted rather than refuted, timed rather than not, the largest saving first."""
        return max(self.lessons, key=lambda lesson: (lesson.outcome == "accepted", *_saved(lesson), lesson.id))

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
        """Why it was refuted, the most frequent reason first."""
        counted = Counter(lesson.reason for lesson in self.lessons if lesson.outcome == "refuted" and lesson.reason)
        return tuple(sorted(counted, key=lambda reason: (-counted[reason], reason)))


class SimilarExperience(Record):
    """An experience and how well it fits the situation that was asked about."""

    experience: Experience
    similarity: float                      # 0 to 1
    score: float                           # similarity times weight


def gathered(lessons: Iterable[Lesson]) -> tuple[Experience, ...]:
    """Lessons put together by key, the weightiest first."""
    by_key: dict[str, list[Lesson]] = {}
    for lesson in each_once(lessons):
        by_key.setdefault(lesson.key, []).append(lesson)
    found = [Experience(key=key, lessons=tuple(same)) for key, same in by_key.items()]
    return tuple(sorted(found, key=lambda experience: (-experience.weight, experience.key)))


def fitting(experiences: Iterable[Experience], situation: Situation, limit: int = 5) -> tuple[SimilarExperience, ...]:
    """What fits `situation` best, by similarity times weight, at most `limit`; nothing that is less than 0.1 alike."""
    found = []
    for experience in experiences:
        alike = max(similarity(situation, lesson.situation) for lesson in experience.lessons)
        if alike >= LEAST:
            found.append(SimilarExperience(experience=experience, similarity=alike, score=alike * experience.weight))
    found.sort(key=lambda recalled: (-recalled.score, recalled.experience.key))
    return tuple(found[:limit])


def promise_kept(lesson: Lesson) -> bool:
    """Whether it was accepted and saved what was predicted, within a factor of two either way."""
    if lesson.outcome != "accepted" or lesson.saving_ms is None:
        return False
    return lesson.predicted_ms / WITHIN <= lesson.saving_ms <= lesson.predicted_ms * WITHIN


def _counts(lesson: Lesson) -> float:
    return UNTIMED if lesson.outcome == "accepted" and lesson.saving_ms is None else 1.0


def _saved(lesson: Lesson) -> tuple[bool, float]:
    return lesson.saving_ms is not None, lesson.saving_ms or 0.0
