//! Modules that an image has imported for its programs and hides until they import them: no program can
//! tell.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::thread::available_parallelism;

use hatchery::image::ProgramImports;
use hatchery::progress::{Progress, ProgressSink};
use hatchery::{Deterministic, Hatchery, Job, Limits, Verdict};
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::support::{builder, calm, value, with_hiding_pool, with_own_pool, with_pool};

/// Programs whose outcome shows what they see of modules. Those of several lines stand below.
const LINES: &str = "\
import sys; sorted(sys.modules)
import gc, types; sorted({m.__name__ for m in gc.get_objects() if type(m) is types.ModuleType})
import xml.etree.ElementTree, sys; import xml; [hasattr(xml, 'dom'), 'xml.dom' in sys.modules]
import numpy, sys; ['numpy.ma' in sys.modules, 'ma' in vars(numpy), 'pandas' in sys.modules]
import concurrent, importlib, email, urllib; [hasattr(concurrent, 'futures'), hasattr(importlib, 'metadata'), hasattr(email, 'mime'), hasattr(urllib, 'request')]
import pandas, sys; sorted(set(sys.modules) - {'concurrent.futures.thread', 'queue', '_sysconfigdata__wasi_wasm32-wasi'})
import unittest.mock, asyncio, statistics, sys; sorted(set(sys.modules) - {'concurrent.futures.thread', 'queue'})
import matplotlib.pyplot, sys; sorted(set(sys.modules) - {'_zip_resources'})
import warnings; a = [str(f) for f in warnings.filters]; import numpy, pandas; [a, [str(f) for f in warnings.filters]]
import warnings; warnings.simplefilter('error'); import pandas, matplotlib.pyplot, unittest.mock, asyncio
import os; a = dict(os.environ); import pandas, matplotlib; [a, dict(os.environ)]
import os; os.environ['MPLBACKEND'] = 'svg'; import matplotlib; matplotlib.get_backend()
import matplotlib; matplotlib.use('svg'); import matplotlib.pyplot as p; [matplotlib.get_backend(), p.get_backend()]
import matplotlib.pyplot as plt, sys; f = plt.figure(); [type(f.canvas).__name__, 'matplotlib.backends.backend_agg' in sys.modules]
import os; open('matplotlibrc', 'w').write('lines.linewidth: 7'); import matplotlib; matplotlib.rcParams['lines.linewidth']
import os; os.environ['PYTHONTZPATH'] = '/x'; import zoneinfo; zoneinfo.TZPATH
import logging; [str(logging.root.handlers), logging.root.level]
import logging; logging.warning('x'); logging.getLogger('a').error('y')
import logging; r = logging.LogRecord('n', 1, 'p', 1, 'm', (), None); 0 <= r.relativeCreated < 600000
import atexit; a = atexit._ncallbacks(); import logging; [a, atexit._ncallbacks()]
import sys, threading, os, locale; [threading.active_count(), sys.getrecursionlimit(), sorted(os.listdir('/home')), os.listdir('/tmp'), locale.setlocale(locale.LC_ALL), os.getcwd(), os.listdir()]
import sys; [[getattr(f, '__name__', type(f).__name__) for f in sys.meta_path], len(sys.path_hooks), sys.path, sorted(vars(sys))]
open('statistics.py', 'w').write('x = 1'); import statistics; statistics.x
open('decimal.py', 'w').write('y = 1'); import statistics
open('random.py', 'w').write('y = 1'); import random; random.y
import os; os.mkdir('csv'); open('csv/__init__.py', 'w').write('z = 5'); import csv; csv.z
import os; os.chdir('/tmp'); open('statistics.py', 'w').write('x = 1'); import statistics; hasattr(statistics, 'x')
import sys, os; os.mkdir('/tmp/q'); open('/tmp/q/csv.py', 'w').write('z = 5'); sys.path.insert(0, '/tmp/q'); import csv; csv.z
import sys, os; os.mkdir('/tmp/q'); open('/tmp/q/csv.py', 'w').write('z = 5'); sys.path.append('/tmp/q'); import csv; hasattr(csv, 'z')
import sys; sys.path.clear(); import csv
import sys; sys.meta_path.clear(); import csv
import csv, importlib; c = importlib.reload(csv); [c is csv, csv.__spec__.name]
import csv, sys; a = csv; del sys.modules['csv']; import csv; [a is csv, csv.__name__]
import decimal, statistics, sys; [decimal.__name__, sys.modules['decimal'] is decimal, decimal.__spec__.name, statistics.Decimal is decimal.Decimal]
import statistics; import decimal; [statistics.Decimal is decimal.Decimal, statistics.mean([1, 2])]
import importlib.util, sys; s = importlib.util.find_spec('csv'); [s.name, s.origin, s.has_location, repr(s), isinstance(s.loader, sys.modules['zipimport'].zipimporter), 'csv' in sys.modules]
import importlib.util, sys; s = importlib.util.find_spec('numpy'); [s.name, s.origin, s.has_location, 'numpy' in sys.modules]
import importlib.util; importlib.util.find_spec('numpy.nope')
import importlib.util; s = importlib.util.find_spec('csv'); m = importlib.util.module_from_spec(s); s.loader.exec_module(m); [m.__name__, hasattr(m, 'reader')]
import csv, statistics; [csv.__loader__ is csv.__spec__.loader, type(csv.__loader__).__name__, csv.__file__, repr(csv), csv.__spec__.origin, csv.__package__, sorted(vars(csv))]
import numpy; [type(numpy.__loader__).__name__, numpy.__file__, repr(numpy), numpy.__spec__.submodule_search_locations, sorted(vars(numpy))]
import sys; sys.modules['numpy'] = None; import pandas
import sys; sys.modules['csv'] = 3; import csv; csv
import sys, types; m = sys.modules['datetime'] = types.ModuleType('datetime'); m.datetime = 1; import calendar
import statistics; statistics.mean([])
import pickle, csv, fractions, datetime; pickle.loads(pickle.dumps([csv.Dialect, fractions.Fraction(1, 2), datetime.date(2020, 1, 2)])) == [csv.Dialect, fractions.Fraction(1, 2), datetime.date(2020, 1, 2)]
import subprocess, sys; [subprocess.run([sys.executable, '-c', 'import statistics; print(statistics.mean([1, 3]))'], capture_output=True, text=True).stdout, 'statistics' in sys.modules, __import__('statistics').mean([1, 5])]
import pkgutil, sys, xml; [sorted(m.name for m in pkgutil.iter_modules(xml.__path__)), [m.name for m in pkgutil.walk_packages(xml.__path__, 'xml.')], 'xml.dom' in sys.modules]
import inspect, statistics; [inspect.getmodule(statistics.mean).__name__, str(inspect.signature(statistics.mean))]
import sys; [getattr(m, '__file__', None) for m in list(sys.modules.values())]; len(sys.modules)
import runpy; runpy.run_module('csv')['__name__']
import xml; from importlib.resources import files; sorted(f.name for f in files('xml').iterdir())
from concurrent.futures import ThreadPoolExecutor; import concurrent.futures; 'ThreadPoolExecutor' in vars(concurrent.futures)
import yaml, numpy as np; [yaml.safe_load('a: 1'), np.random.default_rng(1).random(), np.random.RandomState(1).rand(), np.geterr()]
import random; random.seed(1); [random.random(), random.Random(2).random()]
import pandas as pd; ax = pd.DataFrame({'a': [1, 2]}).plot(); [type(ax).__name__, len(ax.lines)]
import defusedxml.ElementTree as e, xml.etree.ElementTree as x, sys; [e.fromstring('<a b=\"c\"/>').attrib, type(e.XMLParser().parser).__name__, hasattr(x.XMLParser(), 'parser'), x.__name__, sys.modules['_elementtree'] is None]
import tempfile, uuid; [tempfile._name_sequence is None, uuid._node]";

const PROGRAMS: [&str; 10] = [
    "from unittest.mock import patch; import sys\n\
     with patch.dict(sys.modules, {'csv': None}):\n    \
         try: import csv\n    \
         except ImportError as error: found = repr(error)\n\
     found",
    "from unittest.mock import patch; import sys\n\
     with patch.dict(sys.modules, {'decimal': None}):\n    \
         try: import statistics\n    \
         except ImportError as error: found = repr(error)\n\
     import statistics\n\
     [found, statistics.mean([1, 2])]",
    "from unittest.mock import patch; import sys\n\
     with patch.dict(sys.modules):\n    import csv\n\
     found = 'csv' in sys.modules\n\
     import csv\n\
     [found, csv.__name__]",
    "from unittest.mock import patch\n\
     with patch('csv.reader') as double:\n    import csv\n    found = csv.reader is double\n\
     [found, csv.reader is double]",
    "import sys\n\
     class Finder:\n    \
         seen = []\n    \
         def find_spec(self, name, path=None, target=None): self.seen.append(name)\n\
     sys.meta_path.insert(0, Finder())\n\
     import statistics\n\
     Finder.seen",
    "import sys\n\
     class Finder:\n    \
         def find_spec(self, name, path=None, target=None): return None\n\
     sys.meta_path.insert(0, Finder())\n\
     import pandas\n\
     pandas.DataFrame({'a': [1, 2]}).a.sum().item()",
    "import builtins\n\
     seen, real = [], builtins.__import__\n\
     def count(name, *rest, **more):\n    seen.append(name)\n    return real(name, *rest, **more)\n\
     builtins.__import__ = count\n\
     import statistics\n\
     seen",
    "import sys\n\
     before = set(sys.modules)\n\
     try: import nothing_here\n\
     except ImportError as error: found = repr(error)\n\
     import csv as c, json.tool\n\
     [found, sorted(set(sys.modules) - before)]",
    "import unittest, io\n\
     class Test(unittest.TestCase):\n    \
         def test(self): self.assertEqual(1, 2)\n\
     unittest.TextTestRunner(io.StringIO()).run(Test('test')).failures[0][1]",
    "import dataclasses, typing, datetime\n\
     @dataclasses.dataclass\n\
     class Point:\n    at: 'datetime.date'\n\
     str(typing.get_type_hints(Point))",
];

fn programs() -> impl Iterator<Item = &'static str> {
    LINES.lines().chain(PROGRAMS)
}

/// Returns how each program ended, and what it wrote.
async fn ends(pool: &Hatchery) -> Vec<(Verdict, String, String)> {
    let mut tickets = Vec::new();
    for program in programs() {
        tickets.push(pool.submit(Job::code(program)).await.expect("the queue isn't full"));
    }
    let mut ends = Vec::new();
    for ticket in tickets {
        let outcome = ticket.await;
        let (stdout, stderr) = (outcome.stdout_text(), outcome.stderr_text());
        ends.push((outcome.verdict, stdout, stderr));
    }
    ends
}

#[test]
fn programs_see_the_same_with_and_without_hidden_modules() {
    let plain = with_pool(ends);
    let hiding = with_hiding_pool(ends);
    let both = plain.iter().zip(&hiding).zip(programs());
    let differing: Vec<_> = both.filter(|((plain, hiding), _)| plain != hiding).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn an_image_hides_what_programs_import_if_that_pays() {
    let image_of = |pool: &'static Hatchery| async { pool.image().expect("it has one").clone() };
    let (plain, image) = (with_pool(image_of), with_hiding_pool(image_of));
    assert!(image.preload.is_empty());
    for name in ["asyncio", "numpy", "pandas", "yaml"] {
        assert!(image.hidden.iter().any(|hidden| hidden == name), "{name}: {image:?}");
    }
    assert_eq!((&plain.key, &plain.visible_key), (&image.visible_key, &image.visible_key));
    assert_ne!(image.key, image.visible_key);
}

/// Returns the least CPU time of five imports of a module.
async fn seconds(pool: &Hatchery, module: &str) -> f64 {
    let source =
        format!("import time; a = time.process_time(); import {module}; time.process_time() - a");
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let outcome = pool.run(Job::code(source.as_str())).await.unwrap();
        least = least.min(value(&outcome).as_f64().unwrap());
    }
    least
}

/// Importing pandas takes some 100,000 executions of code; showing it takes few.
#[test]
fn an_import_of_hidden_modules_takes_little_time() {
    with_hiding_pool(|pool| async {
        let seconds = seconds(pool, "pandas").await;
        assert!(seconds < 0.1, "{seconds}");
    });
}

/// Tells how many modules an image hides when it has been made.
struct Told(Sender<usize>);

impl ProgressSink for Told {
    fn report(&self, progress: Progress) {
        if let Progress::Hiding(count) = progress {
            self.0.try_send(count).unwrap();
        }
    }
}

/// Runs jobs that could import sympy until that pays on this machine, and waits for the image.
async fn learn(pool: &Hatchery, told: &mut Receiver<usize>) {
    let source = "import sys\nif len(sys.argv) > 9: import sympy\n'sympy' in sys.modules";
    for _ in 0..10 * available_parallelism().unwrap().get() {
        assert_eq!(value(&pool.run(Job::code(source)).await.unwrap()), json!(false));
    }
    assert_eq!(told.recv().await, Some(1));
    assert_eq!(value(&pool.run(Job::code(source)).await.unwrap()), json!(false));
    assert_eq!(pool.status().hidden, ["sympy"]);
    let mut ticket = pool.submit(Job::code("while True: pass")).await.unwrap();
    let explanation = pool.explain(ticket.job_id()).await.unwrap();
    assert_eq!(explanation.hidden, ["sympy"]);
    assert!(explanation.to_string().ends_with("; its image has imported 1 module"));
    ticket.stop();
    ticket.outcome().await;
}

#[test]
fn a_pool_learns_what_its_jobs_import_and_its_sessions_stay_as_they_are() {
    let (sender, mut told) = channel(1);
    let builder = builder().preload_auto().progress(Told(sender));
    with_own_pool(builder, |pool| async move {
        let (key, reserved) = (pool.image().unwrap().key.clone(), pool.status().memory);
        let session = pool.session("a").await.unwrap();
        let run = async |source: &str| value(&session.run(Job::code(source)).await.unwrap());
        run("x = 42; x").await;
        let drawn = "import random, sys; [random.random(), sorted(sys.modules), id(sys)]";
        let fixed = Job::code(drawn).deterministic(Deterministic::new(7));
        let before = value(&pool.run(fixed.clone()).await.unwrap());
        assert!(pool.status().hidden.is_empty());

        learn(&pool, &mut told).await;
        let seconds = seconds(&pool, "sympy").await;
        assert!(seconds < 0.15, "{seconds}");
        assert!(pool.status().memory.shared_bytes > reserved.shared_bytes + (16 << 20));
        assert_eq!(pool.pythons().collect::<Vec<_>>(), ["default"]);
        assert_eq!(pool.status().pythons, ["default"]);
        assert_eq!(value(&pool.run(fixed).await.unwrap()), before, "it began from the same image");

        // Sessions, and what comes of them, are of the image of the start.
        assert_eq!(run("x").await, json!(42));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("session");
        session.save(&file).await.unwrap();
        assert_eq!(pool.image().unwrap().key, key);
        let (fork, revived) =
            (session.fork("b").await.unwrap(), pool.revive("c", &file).await.unwrap());
        let checkpoint = fork.checkpoint().await.unwrap();
        let fresh = pool.session("d").await.unwrap();
        fresh.restore(&checkpoint).await.unwrap();
        for session in [fork, revived, fresh] {
            let outcome = session.run(Job::code("import sys; [x, 'sympy' in sys.modules]")).await;
            assert_eq!(value(&outcome.unwrap()), json!([42, false]));
        }
        pool.drain().await;
    });
}

#[test]
fn variables_of_a_job_are_read_by_what_it_imports() {
    with_hiding_pool(|pool| async {
        let job = Job::code("import matplotlib; matplotlib.get_backend()");
        assert_eq!(value(&pool.run(job.clone()).await.unwrap()), json!("Agg"));
        assert_eq!(value(&pool.run(job.env("MPLBACKEND", "svg")).await.unwrap()), json!("svg"));
    });
}

#[test]
fn jobs_draw_their_own_random_numbers_from_hidden_modules() {
    with_hiding_pool(|pool| async {
        let source = "import random, numpy, uuid, tempfile\n\
            [random.random(), numpy.random.rand(), uuid.uuid4().hex, tempfile.mktemp()]";
        let mut drawn = Vec::new();
        for _ in 0..3 {
            drawn.push(value(&pool.run(Job::code(source)).await.unwrap()));
        }
        for place in 0..4 {
            assert!(
                drawn[0][place] != drawn[1][place] && drawn[1][place] != drawn[2][place],
                "{drawn:?}"
            );
        }
    });
}

#[test]
fn jobs_have_their_memory_beside_that_of_hidden_modules() {
    with_hiding_pool(|pool| async {
        let limits = Limits { memory_bytes: 96 << 20, ..calm() };
        let job = |mib: usize| Job::code(format!("len(bytes({mib} << 20))")).limits(limits.clone());
        assert_eq!(value(&pool.run(job(30)).await.unwrap()), json!(30 << 20));
        let outcome = pool.run(job(96)).await.unwrap();
        assert!(!outcome.is_success(), "{outcome:?}");
        assert_eq!(outcome.limits_met[0].limit.name(), "memory");
    });
}

#[test]
fn sessions_keep_what_they_have_imported() {
    with_hiding_pool(|pool| async {
        let session = pool.session("imports").await.unwrap();
        let run = async |source: &str| value(&session.run(Job::code(source)).await.unwrap());
        run("import sys, statistics; first = statistics\n1").await;
        let source = "import statistics, decimal\n\
            [first is statistics, statistics.Decimal is decimal.Decimal, 'csv' in sys.modules]";
        assert_eq!(run(source).await, json!([true, true, false]));
        let fork = session.fork("imports too").await.unwrap();
        let outcome = fork.run(Job::code("import csv; [csv.__name__, first.mean([1, 3])]")).await;
        assert_eq!(value(&outcome.unwrap()), json!(["csv", 2]));
        session.close();
        fork.close();
    });
}

#[test]
fn what_does_not_pay_changes_nothing() {
    let mut imports = ProgramImports::default();
    imports.add("import fractions_of_nothing, xarray");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let image = Hatchery::builder().preload_for(imports).load_image().await.unwrap();
        assert_eq!((image.key, image.hidden.len()), (image.visible_key, 0));
    });
}
