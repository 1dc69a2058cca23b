//! Cells of notebooks: displays, magics, the environment, and awaiting.

use serde_json::json;

use crate::notebooks::{cells, check_schema, result, run_notebook, stream, write};
use crate::{run, text};

#[test]
fn displays_of_earlier_cells_are_updated() {
    let folder = tempfile::tempdir().unwrap();
    let sources = ["h = display('a', display_id=True)", "print('b')\nh.update('c')"];
    let path = write(folder.path(), "a.ipynb", &sources);
    assert_eq!(run_notebook(&path, &[]).status.code(), Some(0));
    let copy = folder.path().join("a.executed.ipynb");
    check_schema(&copy);
    assert_eq!(cells(&copy)[0]["outputs"][0]["data"]["text/plain"], json!(["'c'"]));
    assert_eq!(cells(&copy)[1]["outputs"], json!([stream(&["b\n"])]));
}

#[test]
fn the_environment_and_awaited_tasks_span_cells() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        "import os\nos.environ['A'] = '1'",
        "kept = os.environ['A']\nos.environ.clear()\n(kept, len(os.environ))",
        "len(os.environ)",
        "%%time\nimport asyncio\nawait asyncio.sleep(0.01, 'slept')",
        "async def work(): pass\nwork()\nNone",
        "import warnings\nwarnings.warn('far', stacklevel=3)",
    ];
    let path = write(folder.path(), "a.ipynb", &sources);
    let output = run_notebook(&path, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let cells = cells(&folder.path().join("a.executed.ipynb"));
    assert_eq!(cells[1]["outputs"], json!([result(2, &["('1', 0)"])]));
    assert_eq!(cells[2]["outputs"], json!([result(3, &["0"])]));
    assert_eq!(cells[3]["outputs"][1], result(4, &["'slept'"]));
    // Warnings name the cell or nothing, and no file of Hatchery.
    let awaited = cells[4]["outputs"].to_string();
    assert!(awaited.contains("In[5]:2: RuntimeWarning: coroutine 'work' was never"), "{awaited}");
    let far = cells[5]["outputs"].to_string();
    assert!(far.contains("<sys>:0: UserWarning: far") && !far.contains("<hatchery"), "{far}");
}

/// The translation needs nothing but CPython, so no notebook is run for it.
#[test]
fn cells_are_translated_to_python() {
    let translation = include_str!("../../../apps/notebook/src/guest/translation.py");
    let output = run(&["run", "-c", &[translation, include_str!("translation.py")].join("\n")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn what_ipython_adds_works_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n%config InlineBackend.figure_format = 'png'",
        "%%time\nx = sum(range(10))\nx",
        "y = %time x + 1\n%timeit -n 2 -r 2 x",
        "%%writefile made.py\nvalue = '''\n%time\n'''",
        "import made\nmade.value",
        "%%html\n<b>bold</b>",
        "%pip install numpy",
        "from IPython.display import Image, Markdown, clear_output\nclear_output()\nImage(data=b'\\x89PNG')",
        "?len",
        "%pip install requests",
        "name = 'made.py'\n!ls m* {name} $name; echo $HOME; nosuch || echo $? $$",
        "%%bash --out said\nls made.py\ncd / && pwd",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        "%env A=1\nimport os\nos.environ['B'] = '2'",
        "os.environ['A'] + os.environ['B']",
        "%pylab inline\nhist(arange(10) % 3);",
        "lines = !printf '2 b\\n1 a\\n' | sort\n(list(lines), lines.n, list(lines.fields(1)), said)",
        "%%sh\necho out; echo err >&2; exit 3",
        "%%perl\n1",
        "!git log\n_exit_code",
    ];
    let path = write(folder.path(), "a.ipynb", &sources);
    let output = run_notebook(&path, &["--allow-errors", "--timeout", "2m", "--cpu-time", "2m"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let copy = folder.path().join("a.executed.ipynb");
    check_schema(&copy);
    let cells = cells(&copy);
    let outputs = |number: usize| cells[number - 1]["outputs"].clone();
    assert_eq!(outputs(1), json!([]));
    let timed = outputs(2);
    assert!(timed[0]["text"][1].as_str().unwrap().starts_with("Wall time: "), "{timed}");
    assert_eq!(timed[1], result(2, &["45"]));
    assert!(outputs(3).to_string().contains("2 runs, 2 loops each"), "{}", outputs(3));
    assert_eq!(outputs(4), json!([stream(&["Writing made.py\n"])]));
    assert_eq!(outputs(5), json!([result(5, &["'\\n%time\\n'"])]));
    assert_eq!(outputs(6)[0]["data"]["text/html"], json!(["<b>bold</b>\n"]));
    assert_eq!(outputs(7), json!([stream(&["Requirement already satisfied: numpy\n"])]));
    assert_eq!(outputs(8)[0]["data"]["image/png"], "iVBORw==");
    assert!(outputs(9).to_string().contains("Return the number of items"), "{}", outputs(9));
    let listed = "made.py\nmade.py\nmade.py\n/home\nsh: nosuch: not found\n127 ";
    let written = outputs(11)[0]["text"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect::<String>();
    assert!(written.starts_with(listed), "{written}");
    assert_eq!(outputs(12), json!([]));
    for (number, advice) in [(10, "--package"), (19, "%%bash")] {
        let failed = outputs(number);
        assert_eq!(failed[0]["ename"], "UsageError", "{failed}");
        assert!(failed[0]["traceback"].to_string().contains(advice), "{failed}");
    }
    // The figure, and not what `plot` returns.
    assert_eq!(outputs(13).as_array().unwrap().len(), 1);
    assert!(outputs(13)[0]["data"]["image/png"].is_string());
    assert_eq!(outputs(15), json!([result(15, &["'12'"])]));
    let filled = outputs(16);
    assert!(filled[0]["text"][1].as_str().unwrap().starts_with("Populating the"), "{filled}");
    assert!(filled[1]["data"]["image/png"].is_string(), "{filled}");
    let said = "(['1 a', '2 b'], '1 a\\n2 b', ['a', 'b'], 'made.py\\n/\\n')";
    assert_eq!(outputs(17), json!([result(17, &[said])]));
    let failed = outputs(18);
    assert_eq!((&failed[0]["text"], &failed[1]["text"]), (&json!(["out\n"]), &json!(["err\n"])));
    assert_eq!(failed[2]["ename"], "CalledProcessError", "{failed}");
    assert_eq!(outputs(20)[1], result(20, &["127"]));
}

#[test]
fn cells_pasted_with_indentation_or_prompts_run() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        "    a = 1\n    a + 2",
        ">>> for i in range(2):\n...     print(i)\n",
        "In [1]: def f():\n   ...:     return 7\n\nIn [2]: f()",
    ];
    let path = write(folder.path(), "a.ipynb", &sources);
    let output = run_notebook(&path, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let cells = cells(&folder.path().join("a.executed.ipynb"));
    let outputs = [result(1, &["3"]), stream(&["0\n", "1\n"]), result(3, &["7"])];
    for (cell, expected) in cells.iter().zip(outputs) {
        assert_eq!(cell["outputs"], json!([expected]));
    }
}

#[test]
fn a_display_that_raises_fails_its_cell() {
    let folder = tempfile::tempdir().unwrap();
    let classes = "class A:\n def __repr__(self): raise ValueError('a')\n\
                   class B:\n def __repr__(self): return 'B'\n def _repr_html_(self): 1 / 0";
    let sources = [
        classes,
        "A()",
        "B()",
        "display(A())\nprint('after')",
        "display(A(), B())\nraise KeyError('own')",
        "import matplotlib.pyplot as plt\nplt.title(r'$\\frac{$');",
        "'next'",
    ];
    let path = write(folder.path(), "a.ipynb", &sources);
    assert_eq!(run_notebook(&path, &[]).status.code(), Some(1));
    let output = run_notebook(&path, &["--allow-errors", "--timeout", "2m"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let copy = folder.path().join("a.executed.ipynb");
    check_schema(&copy);
    let cells = cells(&copy);
    let names = |number: usize| -> Vec<String> {
        let outputs = cells[number - 1]["outputs"].as_array().unwrap().iter();
        let name = |output: &serde_json::Value| match &output["ename"] {
            serde_json::Value::Null => output["output_type"].clone(),
            name => name.clone(),
        };
        outputs.map(|output| name(output).as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(2), ["ValueError"]);
    assert_eq!(names(3), ["execute_result", "ZeroDivisionError"]);
    assert_eq!(names(4), ["stream", "ValueError"]);
    let traceback = cells[3]["outputs"][1]["traceback"].to_string();
    assert!(traceback.contains("In[1]") && !traceback.contains("hatchery"), "{traceback}");
    // Nothing is lost of a cell that fails in three ways.
    let told = cells[4]["outputs"].to_string();
    for error in ["ValueError: a", "ZeroDivisionError: division", "KeyError"] {
        assert!(told.contains(error), "{error}: {told}");
    }
    assert_eq!(cells[4]["outputs"].as_array().unwrap().last().unwrap()["ename"], "KeyError");
    assert_eq!(names(6).last().unwrap(), "ValueError");
    assert_eq!(names(7), ["execute_result"]);
}

#[test]
fn sys_exit_ends_a_notebook_as_in_papermill() {
    let folder = tempfile::tempdir().unwrap();
    for (source, code) in [
        ("import sys\nsys.exit(0)", 0),
        ("exit()", 0),
        ("quit()", 0),
        ("raise SystemExit", 0),
        ("exit(3)", 1),
        ("import os\nos._exit(0)", 1),
        ("import sys\nsys.exit('why')", 1),
    ] {
        let path = write(folder.path(), "a.ipynb", &["1", source, "print('never')"]);
        let output = run_notebook(&path, &[]);
        assert_eq!(output.status.code(), Some(code), "{source}: {output:?}");
        let cells = cells(&folder.path().join("a.executed.ipynb"));
        assert_eq!(cells[1]["outputs"][0]["ename"], "SystemExit");
        assert_eq!(cells[2]["outputs"], json!([]));
        let told = if code == 0 { "exited at cell 2 of 3" } else { "cell 2 of 3 failed" };
        assert!(text(&output.stderr).contains(told), "{output:?}");
    }
    let path = write(folder.path(), "a.ipynb", &["exit()", "'next'"]);
    assert_eq!(run_notebook(&path, &["--allow-errors"]).status.code(), Some(0));
    let cells = cells(&folder.path().join("a.executed.ipynb"));
    assert_eq!(cells[1]["outputs"], json!([result(2, &["'next'"])]));
}

#[test]
fn autoreload_takes_changes_of_modules() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        "%load_ext autoreload\n%autoreload 2",
        "%%writefile made.py\nclass A:\n    def value(self): return 1\ndef f(): return 1",
        "import made\nfrom made import A, f\na = A()\nf(), a.value()",
        "%%writefile made.py\nclass A:\n    def value(self): return f()\ndef f(x=22): return x",
        "f(), a.value(), isinstance(a, made.A)",
        "%autoreload 0",
        "%%writefile made.py\ndef f(): return 333",
        "f()",
    ];
    let path = write(folder.path(), "a.ipynb", &sources);
    let output = run_notebook(&path, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let cells = cells(&folder.path().join("a.executed.ipynb"));
    assert_eq!(cells[2]["outputs"], json!([result(3, &["(1, 1)"])]));
    assert_eq!(cells[4]["outputs"], json!([result(5, &["(22, 22, True)"])]));
    assert_eq!(cells[7]["outputs"], json!([result(8, &["22"])]));
}

#[test]
fn advice_in_a_notebook_names_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let sources = ["input()", "open('a.csv')", "%pip install nowhere"];
    let path = write(folder.path(), "a.ipynb", &sources);
    let output = run_notebook(&path, &["--allow-errors"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let cells = cells(&folder.path().join("a.executed.ipynb"));
    for (cell, advice) in cells.iter().zip(["(`--parameter`)", "`--input a.csv`", "`--package`"]) {
        let traceback = cell["outputs"][0]["traceback"].to_string();
        assert!(traceback.contains(advice), "{traceback}");
    }
}

#[test]
fn a_resumed_notebook_has_its_tasks_and_results() {
    let folder = tempfile::tempdir().unwrap();
    let sources = |third: &'static str| {
        let first = "import asyncio\n6 * 7";
        let second = "task = asyncio.create_task(asyncio.sleep(0.01, 'slept'))";
        [first, second, third, "await task, own, _1, In[1] == _i1"]
    };
    let path = write(folder.path(), "a.ipynb", &sources("1 / 0"));
    assert_eq!(run_notebook(&path, &[]).status.code(), Some(1));
    let own = "own = asyncio.run(asyncio.sleep(0, 'own'))";
    let path = write(folder.path(), "a.ipynb", &sources(own));
    let output = run_notebook(&path, &["--resume"]);
    assert!(text(&output.stderr).contains("resuming at cell 3 of 4"), "{output:?}");
    let copy = folder.path().join("a.executed.ipynb");
    assert_eq!(cells(&copy)[3]["outputs"], json!([result(4, &["('slept', 'own', 42, True)"])]));
}

/// IPython's own modules use the notebook's shell. `ipython.txt` has its wheels from PyPI, without
/// `psutil`, which is compiled, and which it imports only where it is used.
#[test]
fn a_real_ipython_in_the_image_shows_through_the_notebook() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        "import IPython\nfrom IPython.display import HTML, Markdown, clear_output\n\
         IPython.version_info[0] >= 9, '__file__' in vars(IPython)",
        "handle = IPython.display.display('one', display_id='here')\nHTML('<b>')",
        "handle.update('two')\nIPython.get_ipython() is get_ipython()",
        "print('gone')\nclear_output()\nIPython.display.display(Markdown('*m*'))",
        "from IPython.core.interactiveshell import InteractiveShell\n\
         InteractiveShell.ast_node_interactivity = 'all'",
        "1\n2",
    ];
    let path = write(folder.path(), "a.ipynb", &sources);
    let requirements = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/notebooks/ipython.txt");
    let output = run_notebook(&path, &["--requirements", requirements, "--timeout", "2m"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let copy = folder.path().join("a.executed.ipynb");
    check_schema(&copy);
    let cells = cells(&copy);
    let outputs = |number: usize| &cells[number - 1]["outputs"];
    assert_eq!(*outputs(1), json!([result(1, &["(True, True)"])]));
    assert_eq!(outputs(2)[0]["data"]["text/plain"], json!(["'two'"]));
    assert_eq!(outputs(2)[1]["data"]["text/html"], json!(["<b>"]));
    assert_eq!(*outputs(3), json!([result(3, &["True"])]));
    assert_eq!(outputs(4).as_array().unwrap().len(), 1);
    assert_eq!(outputs(4)[0]["data"]["text/markdown"], json!(["*m*"]));
    assert_eq!(*outputs(6), json!([result(6, &["1"]), result(6, &["2"])]));
}
