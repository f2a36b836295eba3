"""Pages of HTML, read by Python's own parser."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}
SHAPES = {"path", "circle", "rect"}


class Page(HTMLParser):
    """The elements of a page, in their order: tag, attributes, and the text directly in it. Raises
    AssertionError where one ends that has not begun, or has no end."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self._open = [], []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag, attrs):
        assert tag in SHAPES or tag.startswith("m"), f"<{tag}/> is not closed in HTML"
        self.elements.append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        assert self._open and self._open.pop()[0] == tag, tag

    def handle_data(self, data):
        if self._open:
            self._open[-1][2] += data

    def all(self, tag, **attributes):
        """The texts of the elements of a tag, with these attributes."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            text
            for own, found, text in self.elements
            if own == tag and wanted.items() <= found.items()
        ]


def alone(text):
    """The page of a text, which must be well-formed, and neither run nor load anything."""
    page = Page(text)
    tags = {tag for tag, _, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    loads = {"src", "href", "srcset", "data", "xlink:href"}
    assert not [
        attribute for _, attributes, _ in page.elements for attribute in loads & {*attributes}
    ]
    assert not [
        attribute for tag, a, _ in page.elements for attribute in a if attribute.startswith("on")
    ]
    assert "url(" not in text and "@import" not in text
    return page
