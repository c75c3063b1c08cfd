"""Runs a notebook in a real kernel against a `fondaco dev`, and takes its picture: see tests/python/picture.

picture.py PROGRAM DIRECTORY PICTURE
"""

import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
from nbconvert import HTMLExporter
from PIL import Image, ImageChops

PROGRAM, DIRECTORY, PICTURE = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
WIDTH, HEIGHT_MAX, MARGIN = 880, 2400, 12
BYTES_MAX = 150_000

SET_UP = "%config InlineBackend.print_figure_kwargs = {'dpi': 84, 'bbox_inches': 'tight'}"

CELLS = [
    """
import fondaco, numpy as np, pandas as pd

random = np.random.default_rng(7)                     # a million rides from 400 stations
rides = pd.DataFrame({"station": (random.geometric(0.008, 1_000_000) - 1) % 400,
                      "hour": random.normal(14, 4, 1_000_000) % 24})
rides["minutes"] = random.gamma(3, 4 + abs(rides.hour - 13) / 2 + rides.station / 80)
stations = rides.groupby("station").agg(rides=("hour", "size"), minutes=("minutes", "mean"),
                                        hours=("hour", lambda all: np.histogram(all, 24, (0, 24))[0]))
""",
    """
store = fondaco.connect("127.0.0.1:6500").store("stations")
pushed = store.push(stations.reset_index(), key="station", create=True)
""",
    """
store.get_many([7, 42, 399]).to_arrow().to_pandas()   # the types that the columns had
""",
    """
import matplotlib.pyplot as plt

table = store.scan().to_arrow().to_pandas()           # all rows
_, (left, right) = plt.subplots(1, 2, figsize=(10, 2.9), layout="constrained")
left.set(xlabel="rides", ylabel="mean minutes")
left.scatter(table.rides, table.minutes, c=table.station, s=12)
right.set(xlabel="hour", ylabel="rides")
right.bar(range(24), np.sum(list(table.hours), axis=0), color="#7b5ea7");
""",
]


def run(notebook: nbformat.NotebookNode) -> None:
    """Runs the cells against a cluster of one node, on the ports that the README names."""
    log = (DIRECTORY / "log").open("w+")
    node = subprocess.Popen([PROGRAM, "dev", "--data", DIRECTORY / "data", "--json"], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert node.stdout is not None
        if not node.stdout.readline():
            log.seek(0)
            raise SystemExit(f"the node does not start: {log.read()}")
        nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    finally:
        node.kill()
        node.wait()


def show(notebook: nbformat.NotebookNode) -> None:
    """The notebook as a page, and the page as a picture of as few bytes as a README wants."""
    page, raw = DIRECTORY / "notebook.html", DIRECTORY / "notebook.png"
    text, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
    page.write_text(text.replace("</head>", "<style>body { padding: 8px !important; } .jp-Cell { padding: 2px !important; }</style></head>"))
    subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
         f"--user-data-dir={DIRECTORY}/chromium", f"--window-size={WIDTH},{HEIGHT_MAX}", f"--screenshot={raw}", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    picture = Image.open(raw).convert("RGB")
    _, _, _, bottom = ImageChops.difference(picture, Image.new("RGB", picture.size, picture.getpixel((0, HEIGHT_MAX - 1)))).getbbox()
    picture = picture.crop((0, 0, WIDTH, min(bottom + MARGIN, HEIGHT_MAX)))
    picture.quantize(128, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    size = Path(PICTURE).stat().st_size
    assert size <= BYTES_MAX, f"{PICTURE} has {size} bytes: more than {BYTES_MAX}"
    print(f"{PICTURE}: {picture.width} x {picture.height}, {size} bytes")


notebook = nbformat.v4.new_notebook()
notebook.cells = [nbformat.v4.new_code_cell(source.strip()) for source in (SET_UP, *CELLS)]
run(notebook)
del notebook.cells[0]
for number, cell in enumerate(notebook.cells, 1):
    cell.execution_count = number
    for output in cell.outputs:
        if "execution_count" in output:
            output.execution_count = number
show(notebook)
