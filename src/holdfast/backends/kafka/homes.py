"""Where the events of a category are, and the text by which the store keeps it with the category."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.store.stream_values import Category


class Home(NamedTuple):
    """The topic of a category. The id distinguishes a topic from a later one of the same name."""

    category: str
    topic: str
    topic_id: str

    def __str__(self) -> str:
        """Return the text that is stored; messages show it, too."""
        return f"Kafka topic {self.topic}, id {self.topic_id}"

    @classmethod
    def of(cls, category: Category) -> Home:
        """Return the home of a category whose events are in Kafka."""
        topic, _, topic_id = (category.home or "").removeprefix("Kafka topic ").partition(", id ")
        return cls(category.category, topic, topic_id)
