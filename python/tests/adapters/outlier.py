"""One task for agents of all frameworks: load a table, find an outlier, draw a figure, answer. A script
stands in for the model."""

VALUES = [20.1, 19.8, 20.4, 20.0, 19.9, 20.2, 97.5, 20.3, 19.7, 20.1]
CSV = "sensor,value\n" + "".join(f"s{place},{value}\n" for place, value in enumerate(VALUES))

LOAD = "import pandas as pd\nframe = pd.read_csv('readings.csv')\nprint(frame.shape)"
FIND = (
    "distance = (frame.value - frame.value.median()).abs()\n"
    "outlier = frame.loc[distance.idxmax()]\n"
    "print(outlier.sensor, outlier.value)"
)
DRAW = "import matplotlib.pyplot as plt\nplt.plot(frame.value, 'o')\nplt.show()"
ANSWER = "s6"

SHAPE = "(10, 2)"
FOUND = "s6 97.5"
