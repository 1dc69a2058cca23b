//! Arrays, frames and figures: their raw bytes, representations and errors.
#![expect(clippy::unwrap_used, reason = "a table that can't be made fails")]

use hatchery::Array;
use hatchery::value::{Column, Frame};
use serde_json::json;

use super::dsl::{Row, array, completes, fails, gives_none, raises, shows, texts};
use super::error::error;

pub(super) fn rows() -> Vec<Row> {
    vec![
        shows("import numpy as np\nnp.arange(3)", "array([0, 1, 2])")
            .data(Array::from_slice(&[0_i64, 1, 2])),
        shows(
            "
            import numpy as np
            np.array([[1.5, np.nan], [np.inf, -0.0]], dtype='f4')
            ",
            "array([[ 1.5,  nan],\n       [ inf, -0. ]], dtype=float32)",
        )
        .data(
            Array::from_slice(&[1.5_f32, f32::NAN, f32::INFINITY, -0.0]).reshape([2, 2]).unwrap(),
        ),
        shows(
            "import numpy as np\nnp.arange(6, dtype='u1').reshape(2, 3).T",
            "array([[0, 3],\n       [1, 4],\n       [2, 5]], dtype=uint8)",
        )
        .data(array("|u1", &[3, 2], [0, 3, 1, 4, 2, 5])),
        shows("import numpy as np\nnp.array([True, False])", "array([ True, False])").data(array(
            "|b1",
            &[2],
            [1, 0],
        )),
        shows("import numpy as np\nnp.array(['a', 'äb'])", "array(['a', 'äb'], dtype='<U2')")
            .data(array("<U2", &[2], [b'a', 0, 0, 0, 0, 0, 0, 0, 0xe4, 0, 0, 0, b'b', 0, 0, 0])),
        shows(
            "import numpy as np\nnp.array(['1970-01-02'], dtype='M8[D]')",
            "array(['1970-01-02'], dtype='datetime64[D]')",
        )
        .data(array("<M8[D]", &[1], [1, 0, 0, 0, 0, 0, 0, 0])),
        shows("import numpy as np\nnp.array([1], dtype='>i2')", "array([1], dtype='>i2')")
            .data(array("<i2", &[1], [1, 0])),
        shows("import numpy as np\nnp.zeros((2, 0))", "array([], shape=(2, 0), dtype=float64)")
            .data(array("<f8", &[2, 0], [])),
        shows("import numpy as np\nnp.array([1, None])", "array([1, None], dtype=object)"),
        completes(
            "import numpy as np\nnp.float64(0.1) + np.float64(0.2)",
            0.30000000000000004,
            "np.float64(0.30000000000000004)",
        )
        .data(array("<f8", &[], 0.30000000000000004_f64.to_le_bytes())),
        completes("import numpy as np\nnp.int64(3)", 3, "np.int64(3)").data(array(
            "<i8",
            &[],
            3_i64.to_le_bytes(),
        )),
        completes("import numpy as np\nnp.bool(True)", true, "np.True_").data(array(
            "|b1",
            &[],
            [1],
        )),
        completes(
            "
            import numpy as np
            {'n': [np.int32(1), np.float32(0.5)], np.int64(2): np.str_('x')}
            ",
            json!({"n": [1, 0.5], "2": "x"}),
            "{'n': [np.int32(1), np.float32(0.5)], np.int64(2): np.str_('x')}",
        ),
        shows("import numpy as np\n[np.float64('nan')]", "[np.float64(nan)]"),
        // Pointers have 32 bits, NumPy's default integers 64.
        completes(
            "
            import sys
            import numpy as np
            import pandas as pd
            n = np.arange(10**6)
            [sys.maxsize, str(n.dtype), n.sum(), n.sum(dtype='i8'), pd.Series(range(10**6)).sum()]
            ",
            json!([2147483647, "int64", 499999500000_i64, 499999500000_i64, 499999500000_i64]),
            "[2147483647, 'int64', np.int64(499999500000), np.int64(499999500000), \
             np.int64(499999500000)]",
        ),
        completes(
            "
            import numpy as np
            made = [np.array([1]), np.zeros(1, int), np.ones(1, 'int'), np.full(1, 7), np.int_([1])]
            made += [np.array([True]) + 1, np.array([1], 'int8').sum(keepdims=True)]
            made += [np.array([1], 'int32').cumsum(), np.random.randint(0, 2**40, 1), np.arange(2)]
            [one.dtype.name for one in made if one.dtype != np.int64]
            ",
            json!([]),
            "[]",
        ),
        shows(
            "
            import numpy as np
            [np.square(100_000), type(np.random.randint(5)), np.array([1], 'uint8').sum().dtype.name]
            ",
            "[np.int64(10000000000), <class 'int'>, 'uint64']",
        ),
        // Where indices are taken, wide ones are, too.
        completes(
            "
            import numpy as np
            import pandas as pd
            from scipy.signal import peak_prominences
            from sklearn.utils.random import sample_without_replacement
            at, to = np.array([1, 2]), np.arange(3)
            np.put(to, at, 9)
            [np.repeat(at, at).tolist(), np.choose(at - 1, [[5, 6], [7, 8]]).tolist(), to.tolist(),
             np.add.reduceat(np.arange(3), at).tolist(), repr(at), repr(np.argsort(at)),
             sorted(sample_without_replacement(3, 3).tolist()), np.random.binomial(at, 1).tolist(),
             pd.DataFrame({'a': [1], 2: [3]})[['a', 2]].values.tolist(),
             peak_prominences([0, 2, 1], [1])[0].tolist()]
            ",
            json!([
                [1, 2, 2], [5, 8], [0, 9, 9], [1, 2], "array([1, 2])", "array([0, 1])",
                [0, 1, 2], [1, 2], [[1, 3]], [1.0]
            ]),
            "[[1, 2, 2], [5, 8], [0, 9, 9], [1, 2], 'array([1, 2])', 'array([0, 1])', \
             [0, 1, 2], [1, 2], [[1, 3]], [1.0]]",
        ),
        completes(
            "
            import numpy as np
            np.linalg.solve([[2, 0], [0, 4]], [2, 2]).tolist()
            ",
            json!([1.0, 0.5]),
            "[1.0, 0.5]",
        ),
        raises(
            "import numpy as np\nnp.zeros(2) + np.zeros(3)",
            "ValueError",
            "operands could not be broadcast together with shapes (2,) (3,) ",
        ),
        fails(
            "import numpy as np\nnp.linalg.inv(np.zeros((2, 2)))",
            error("numpy.linalg.LinAlgError", "Singular matrix").anywhere(),
        ),
        raises(
            "import numpy as np\nnp.zeros(2)[5]",
            "IndexError",
            "index 5 is out of bounds for axis 0 with size 2",
        ),
        completes(
            "
            import numpy as np
            with np.errstate(all='ignore'):
                x = np.array([1.0, -1.0, 0.0]) / 0

            str(x)
            ",
            "[ inf -inf  nan]",
            "'[ inf -inf  nan]'",
        ),
        shows(
            "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None]})",
            "   a    b\n0  1    x\n1  2  NaN",
        )
        .forms(&[(
            "text/html",
            "<div>‹*›<table border=\"1\" \
             class=\"dataframe\">‹*›<td>1</td>‹*›<td>x</td>‹*›</div>",
        )])
        .data(
            Frame::new([
                ("a", Array::from_slice(&[1_i64, 2]).into()),
                ("b", texts([Some("x"), None])),
            ])
            .unwrap(),
        ),
        shows(
            "
            import pandas as pd
            pd.DataFrame({'a': [0.5]}, index=pd.Index(['r'], name='i'))
            ",
            "     a\ni     \nr  0.5",
        )
        .forms(&[("text/html", "<div>‹*›<th>r</th>‹*›<td>0.5</td>‹*›</div>")])
        .data(
            Frame::new([("a", Array::from_slice(&[0.5]).into())])
                .unwrap()
                .with_index(Some("i".to_owned()), texts([Some("r")]))
                .unwrap(),
        ),
        shows("import pandas as pd\npd.DataFrame()", "Empty DataFrame\nColumns: []\nIndex: []")
            .forms(&[("text/html", "<div>‹*›</div>")])
            .data(Frame::new(Vec::<(&str, Column)>::new()).unwrap()),
        shows("import pandas as pd\npd.DataFrame({'a': [[1]]})", "     a\n0  [1]")
            .forms(&[("text/html", "<div>‹*›<td>[1]</td>‹*›</div>")]),
        shows(
            "import pandas as pd\npd.Series([1.5, 2.5], name='s')",
            "0    1.5\n1    2.5\nName: s, dtype: float64",
        )
        .forms(&[("text/html", "‹*›<td>1.5</td>‹*›")]),
        shows("import pandas as pd\npd.Series(['a', 'b'])", "0    a\n1    b\ndtype: ‹*›")
            .forms(&[("text/html", "‹*›<td>a</td>‹*›")]),
        shows(
            "import pandas as pd\npd.Timestamp('2026-01-02 03:04')",
            "Timestamp('2026-01-02 03:04:00')",
        ),
        // Indices and default integers are one type elsewhere.
        completes(
            "
            import numpy as np, pandas as pd
            frame = pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, index=['x', 'y'])
            frame['mean'] = frame.mean(axis=1)
            frame.loc['all'] = frame.mean()
            places = np.cumsum(np.flatnonzero([1, 1, 1]))
            [frame.loc['all'].tolist(), pd._libs.algos.ensure_platform_int(places).tolist()]
            ",
            json!([[1.5, 3.5, 2.5], [0, 1, 3]]),
            "[[1.5, 3.5, 2.5], [0, 1, 3]]",
        ),
        shows("import pandas as pd\npd.Index([1, 2])", "Index([1, 2], dtype='int64')"),
        shows("import pandas as pd\n[pd.NA, pd.NaT]", "[<NA>, NaT]"),
        completes(
            "
            import pandas as pd
            pd.DataFrame({'k': ['a', 'b', 'a'], 'v': [1, 2, 3]}).groupby('k').v.sum().to_dict()
            ",
            json!({"a": 4, "b": 2}),
            "{'a': 4, 'b': 2}",
        ),
        completes(
            "
            import io, pandas as pd
            pd.read_csv(io.StringIO('a,b\\n1,x\\n2,y\\n')).to_dict('records')
            ",
            json!([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
            "[{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]",
        ),
        gives_none("import pandas as pd\nprint(pd.DataFrame({'a': [1]}))").stdout("   a\n0  1\n"),
        fails(
            "import pandas as pd\npd.DataFrame({'a': [1]})['b']",
            error("KeyError", "'b'").anywhere().cause(error("KeyError", "'b'").anywhere()),
        ),
        fails(
            "import pandas as pd\npd.DataFrame({'a': [1], 'b': [1, 2]})",
            error("ValueError", "All arrays must be of the same length").anywhere(),
        ),
        gives_none("import pandas as pd\ndisplay(pd.DataFrame({'a': [1]}))")
            .display(&[("text/plain", "   a\n0  1"), ("text/html", "<div>‹*›<td>1</td>‹*›</div>")]),
        shows(
            "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1), dpi=50)",
            "<Figure size 100x50 with 0 Axes>",
        )
        .forms(&[("image/png", "\u{fffd}PNG‹*›IEND‹*›")]),
        gives_none(
            "
            import matplotlib.pyplot as plt
            plt.plot([1, 2])
            plt.show()
            print('shown')
            ",
        )
        .stdout("shown\n")
        .display(&[
            ("text/plain", "<Figure size 640x480 with 1 Axes>"),
            ("image/png", "\u{fffd}PNG‹*›IEND‹*›"),
        ]),
        completes(
            "
            import matplotlib.pyplot as plt
            plt.figure()
            plt.figure()
            plt.get_fignums()
            ",
            json!([1, 2]),
            "[1, 2]",
        )
        .display(&[
            ("text/plain", "<Figure size 640x480 with 0 Axes>"),
            ("image/png", "\u{fffd}PNG‹*›IEND‹*›"),
        ])
        .display(&[
            ("text/plain", "<Figure size 640x480 with 0 Axes>"),
            ("image/png", "\u{fffd}PNG‹*›IEND‹*›"),
        ]),
        shows(
            "
            from matplotlib.figure import Figure
            Figure(figsize=(1, 1), dpi=100)
            ",
            "<Figure size 100x100 with 0 Axes>",
        )
        .forms(&[("image/png", "\u{fffd}PNG‹*›IEND‹*›")]),
        completes(
            "
            import matplotlib.pyplot as plt
            import io
            figure, axes = plt.subplots()
            axes.set_title('t')
            buffer = io.BytesIO()
            figure.savefig(buffer, format='png')
            plt.close(figure)
            buffer.getvalue()[1:4] == b'PNG'
            ",
            true,
            "True",
        ),
    ]
}
