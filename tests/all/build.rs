//! What the Python build contains: the page about it, and adaptations for what it lacks.

use std::time::Duration;

use hatchery::{Deterministic, Job};
use serde_json::json;

use crate::support::{exception, run, run_job, value, with_preloaded_pool};

/// Returns a job that can import a module beside this file.
fn with_reader(source: &str) -> Job {
    let reader = include_str!("jpeg_reader.py");
    Job::code(source).input("jpeg_reader.py", reader).expect("the name is plain")
}

#[test]
fn the_page_matches_the_build() {
    // It imports every module.
    let job =
        Job::code(include_str!("../../docs/python-build.py")).timeout(Duration::from_secs(90));
    let outcome = with_preloaded_pool(|pool| async { pool.run(job).await.unwrap() });
    assert!(outcome.is_success(), "{outcome:?}");
    let page = include_str!("../../docs/python-build.md");
    let command = "hatchery run docs/python-build.py > docs/python-build.md";
    assert!(outcome.stdout_text() == page, "the page is out of date; `{command}` writes it");
}

#[test]
fn devices_are_read_written_and_distinguished_from_files() {
    let source = "
        import os, stat
        seen = []
        for name in ('null', 'zero', 'random', 'urandom'):
            path = f'/dev/{name}'
            with open(path, 'r+b', 0) as file:
                read = [file.read(4), len(os.pread(file.fileno(), 4, 7))]
                seen.append([name, read[0] == bytes(4), len(read[0]), read[1],
                             file.write(b'abc'), file.seek(0, 2), file.tell(), file.isatty(),
                             os.path.samestat(os.stat(path), os.fstat(file.fileno()))])
            mode, size = os.stat(path).st_mode, os.stat(path).st_size
            seen[-1] += [stat.S_ISCHR(mode), size, os.path.isfile(path), os.path.exists(path)]
        for mode in ('w', 'a'):
            with open(os.devnull, mode) as file:
                print('x' * 100_000, file=file)
        seen.append(open('/dev/zero', 'rb').read(3_000_000) == bytes(3_000_000))
        entries = sorted(entry.name for entry in os.scandir('/dev') if not entry.is_file())
        [seen, entries, open('/dev/urandom', 'rb').read(16) != open('/dev/random', 'rb').read(16)]
    ";
    let outcome = run_job(Job::code(dedent(source)));
    let other = |name: &str, zeroes, count| {
        json!([name, zeroes, count, count, 3, 0, 0, false, true, true, 0, false, true])
    };
    let seen = json!([
        other("null", false, 0),
        other("zero", true, 4),
        other("random", false, 4),
        other("urandom", false, 4),
        true
    ]);
    let entries = json!(["fd", "null", "random", "stderr", "stdin", "stdout", "urandom", "zero"]);
    assert_eq!(value(&outcome), json!([seen, entries, true]));
    assert!(outcome.files.is_empty(), "{:?}", outcome.files);
}

#[test]
fn a_job_that_may_write_no_file_writes_to_the_null_device() {
    let job = Job::code("open('/dev/null', 'w').write('abc')").read_only();
    assert_eq!(value(&run_job(job)), json!(3));
}

#[test]
fn random_bytes_of_a_device_follow_the_seed() {
    let bytes = |seed| {
        let job = Job::code("open('/dev/urandom', 'rb', 0).read(16).hex()");
        value(&run_job(job.deterministic(Deterministic::new(seed))))
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

#[test]
fn files_belong_to_the_user_that_a_program_runs_as() {
    let source = "import os, platform, sys, tarfile\nopen('f', 'w').close(); there = os.stat('f')\n\
                  with tarfile.open('t.tar', 'w') as tar: tar.add('f')\n\
                  with tarfile.open('t.tar') as tar: tar.extractall('out')\n\
                  [os.getuid() == there.st_uid, os.getgid() == there.st_gid, os.listdir('out'), \
                  sys.executable, platform.libc_ver()]";
    assert_eq!(value(&run(source)), json!([true, true, ["f"], "", ["", ""]]));
}

#[test]
fn progress_bars_print_no_warnings() {
    let outcome = run("from tqdm import tqdm\nimport warnings\nwarnings.simplefilter('error')\n\
                       sum(tqdm(range(3))), sum(__import__('tqdm.auto').auto.tqdm(range(4)))");
    assert_eq!(value(&outcome), json!([3, 6]));
    assert!(!outcome.stderr_text().contains("arning"), "{}", outcome.stderr_text());
}

/// Two connections, with the results that CPython gives on Linux.
#[test]
fn connections_to_a_database_lock_each_other_as_on_linux() {
    let source = "
        import os, sqlite3
        one, two = (sqlite3.connect('x.db', timeout=0) for _ in range(2))
        def end(step, *arguments):
            try:
                return step(*arguments) and None
            except sqlite3.OperationalError as error:
                return str(error)
        one.execute('CREATE TABLE t(x)')
        one.executemany('INSERT INTO t VALUES (?)', [(1,), (2,), (3,)])
        one.commit()
        count = lambda: two.execute('SELECT count(*) FROM t').fetchall()[0][0]
        one.execute('INSERT INTO t VALUES (4)')
        ends = [count(), end(two.execute, 'INSERT INTO t VALUES (5)')]
        two.rollback()
        reader = two.execute('SELECT * FROM t')
        reader.fetchone()
        ends.append(end(one.commit))
        reader.fetchall()
        ends += [end(one.commit), count(), end(two.execute, 'INSERT INTO t VALUES (5)')]
        two.rollback()
        one.rollback()
        one.execute('BEGIN EXCLUSIVE')
        ends.append(end(count))
        one.rollback()
        one.execute('ATTACH ? AS other', ('y.db',))
        one.execute('CREATE TABLE other.t(x)')
        one.execute('INSERT INTO other.t VALUES (7)')
        ends.append(sqlite3.connect('y.db', timeout=0).execute('SELECT * FROM t').fetchall())
        one.commit()
        ends + [count(), sorted(os.listdir())]
    ";
    let locked = "database is locked";
    let files = ["x.db", "y.db"];
    let expected = json!([3, locked, locked, null, 4, null, locked, [], 4, files]);
    assert_eq!(value(&run_job(Job::code(dedent(source)))), expected);
}

/// A journal that a crash left behind is rolled back by the next connection that opens the
/// database.
#[test]
fn a_journal_that_was_left_behind_is_rolled_back() {
    let source = "
        import os, shutil, sqlite3
        one = sqlite3.connect('x.db', timeout=0)
        one.execute('PRAGMA cache_size=1')
        one.execute('CREATE TABLE t(x)')
        one.executemany('INSERT INTO t VALUES (?)', [('before' * 200,)] * 200)
        one.commit()
        one.execute('UPDATE t SET x = ?', ('after' * 200,))
        for name in ('x.db', 'x.db-journal'):
            shutil.copy(name, 'copy' + name[1:])
        left = sqlite3.connect('copy.db', timeout=0)
        [left.execute('SELECT DISTINCT substr(x, 1, 5) FROM t').fetchall(),
         left.execute('PRAGMA integrity_check').fetchall(), os.path.exists('copy.db-journal')]
    ";
    assert_eq!(value(&run_job(Job::code(dedent(source)))), json!([[["befor"]], [["ok"]], false]));
}

#[test]
fn pictures_are_written_as_jpeg() {
    let source = "
        import io
        import numpy as np
        from PIL import Image
        from jpeg_reader import read

        y, x = np.mgrid[0:50, 0:70]
        there = np.stack([x * 3, y * 5, 128 + 100 * np.sin((x + y) / 9)], -1).astype('u1')
        ends = []
        for mode, options in [
            ('RGB', {}), ('RGB', {'quality': 95, 'subsampling': 0}), ('L', {'dpi': (300, 300)}),
            ('1', {'quality': 20}), ('CMYK', {}), ('RGB', {'keep_rgb': True, 'comment': b'said'}),
            ('RGB', {'quality': 5, 'optimize': True, 'progressive': True}),
        ]:
            picture, file = Image.fromarray(there).convert(mode), io.BytesIO()
            picture.save(file, 'JPEG', **options)
            found = read(file.getvalue())
            if mode == 'RGB' and not options.get('keep_rgb'):
                picture = picture.convert('YCbCr')
            wanted = 255 - np.asarray(picture) if mode == 'CMYK' else np.asarray(picture.convert(
                'L' if mode == '1' else picture.mode))
            wanted = wanted.reshape(50, 70, -1).astype(float)
            ends.append(round(float(abs(found - wanted).mean()), 2))
            assert Image.open(io.BytesIO(file.getvalue())).size == (70, 50)
        # In several pieces, and from matplotlib.
        import hatchery._jpeg
        hatchery._jpeg.CHUNK_PIXELS, file = 1, io.BytesIO()
        Image.fromarray(there).save(file, 'JPEG', quality=95, subsampling=0)
        wanted = np.asarray(Image.fromarray(there).convert('YCbCr'))
        ends.append(round(float(abs(read(file.getvalue()) - wanted).mean()), 2))
        from matplotlib import pyplot
        pyplot.figure(figsize=(1, 1), dpi=40).text(0.5, 0.5, 'x')
        pyplot.savefig('figure.jpg')
        pyplot.close()
        [ends, list(read(open('figure.jpg', 'rb').read()).shape)]
    ";
    let outcome = run_job(with_reader(&dedent(source)));
    let found = value(&outcome);
    let most = [3.0, 1.5, 3.0, 30.0, 4.0, 4.0, 12.0, 1.5];
    let ends = found[0].as_array().unwrap().iter().map(|end| end.as_f64().unwrap());
    assert_eq!(found[0].as_array().unwrap().len(), most.len());
    for (end, most) in ends.zip(most) {
        assert!(end < most, "{found}");
    }
    assert_eq!(found[1], json!([40, 40, 3]));
}

#[test]
fn errors_name_what_the_build_lacks() {
    for (source, expected) in [
        ("import statsmodels.api as s; s.datasets.spector.load()", "leaves `statsmodels/datasets/"),
        ("from PIL import ImageFont; ImageFont.truetype('x.ttf')", "The build's Pillow"),
        ("from PIL import Image; Image.new('L', (1, 1)).save('x.jp2')", "The build's Pillow"),
        ("from PIL import Image; Image.new('L', (1, 1)).save('x.webp')", "The build's Pillow"),
        ("from matplotlib import pyplot; pyplot.savefig('x.webp')", "The build's Pillow"),
        ("from matplotlib import pyplot; pyplot.savefig('x.avif')", "The build's Pillow"),
        ("from PIL import Image; Image.open('x')", "The build's Pillow"),
    ] {
        let outcome = run_job(Job::code(source).input("x", "RIFF....WEBPVP8 ").unwrap());
        let traceback = &exception(&outcome).traceback;
        let last = traceback.trim_end().lines().last().unwrap();
        assert!(last.contains(expected), "{traceback}");
        assert!(last.contains("docs/python-build.md lists what the build has"), "{traceback}");
    }
    let locked = "import sqlite3\na, b = (sqlite3.connect('x.db', timeout=0) for _ in 'ab')\n\
                  a.execute('BEGIN IMMEDIATE'); b.execute('BEGIN IMMEDIATE')";
    let traceback = exception(&run(locked)).traceback.clone();
    assert!(traceback.contains("Another connection of this program holds the lock"), "{traceback}");
}

/// Removes the indentation of the surrounding code from a program.
fn dedent(source: &str) -> String {
    source
        .lines()
        .map(|line| line.strip_prefix("        ").unwrap_or(line))
        .fold(String::new(), |text, line| text + line + "\n")
}
