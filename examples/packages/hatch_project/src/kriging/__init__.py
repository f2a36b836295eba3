"""How measurements at a distance correlate."""

from kriging.generated import correlation

correlate = correlation.value
