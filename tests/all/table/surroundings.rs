//! What programs find around them as on Linux: streams, paths, callers, dates, functions of the
//! system.

use serde_json::json;

use super::dsl::{Row, completes, ends, exits, fails, gives_none, raises, shows};
use super::error::error;
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        completes(
            "
            import sys
            streams = sys.stdin, sys.stdout, sys.stderr
            [[s.name, s.mode, s.buffer.name, s.fileno()] for s in streams]
            ",
            json!([
                ["<stdin>", "r", "<stdin>", 0],
                ["<stdout>", "w", "<stdout>", 1],
                ["<stderr>", "w", "<stderr>", 2]
            ]),
            "[['<stdin>', 'r', '<stdin>', 0], ['<stdout>', 'w', '<stdout>', 1], ['<stderr>', 'w', '<stderr>', 2]]",
        ),
        shows("import sys\nsys.stdin", "<_io.TextIOWrapper name='<stdin>' mode='r' encoding='utf-8'>"),
        gives_none(
            "
            with open('/dev/stdout', 'w') as out, open('/dev/stderr', 'a') as err:
                out.write('a')
                err.write('b')
            print(open('/dev/fd/1', 'wb', 0).write(b'c'))
            ",
        )
        .stdout("ac1\n")
        .stderr("b")
        .needs(Need::Default),
        completes("open('/dev/stdin').read(), open('/dev/fd/0').read()", json!(["", ""]), "('', '')")
            .needs(Need::Default),
        fails(
            "import os\nos.makedirs(os.path.dirname('report.txt'), exist_ok=True)",
            error("FileNotFoundError", "[Errno 44] No such file or directory: ''").anywhere(),
        )
        .needs(Need::Default),
        raises("open('', 'w')", "FileNotFoundError", "[Errno 44] No such file or directory: ''"),
        completes(
            "
            import os, pathlib, shutil, tempfile
            def fails(call, *arguments):
                try:
                    call(*arguments)
                except FileNotFoundError:
                    return True
            [
                [fails(call, '') for call in (os.stat, os.lstat, os.listdir, os.scandir, os.mkdir,
                                              os.makedirs, os.chdir, os.rmdir, os.remove, shutil.rmtree)],
                [fails(call, '', 'x') for call in (os.rename, os.replace, shutil.copy, shutil.move)],
                os.path.exists(''), os.path.isdir(''), os.access('', os.F_OK), fails(os.stat, b''),
                pathlib.Path('').exists(), os.path.realpath('') == os.getcwd(),
                os.path.dirname(tempfile.mkdtemp(dir='.')) == os.getcwd(),
            ]
            ",
            json!([
                [true, true, true, true, true, true, true, true, true, true],
                [true, true, true, true], false, false, false, true, true, true, true
            ]),
            "[[True, True, True, True, True, True, True, True, True, True], [True, True, True, True], \
             False, False, False, True, True, True, True]",
        ),
        completes(
            "
            import inspect, sys, traceback
            def f():
                try:
                    sys._getframe(2)
                except ValueError as error:
                    deep = str(error)
                return [deep, sys._getframe().f_back.f_back, len(inspect.stack()), len(traceback.extract_stack())]
            f()
            ",
            json!(["call stack is not deep enough", null, 2, 2]),
            "['call stack is not deep enough', None, 2, 2]",
        ),
        ends(
            "
            import logging, traceback
            logging.basicConfig(format='%(filename)s:%(lineno)d %(message)s')
            logging.warning('w')
            traceback.print_stack()
            try:
                open('')
            except OSError:
                traceback.print_exc()
            ",
        )
        .stderr(
            "
            <job>:3 w
              File \"<job>\", line 4, in <module>
                traceback.print_stack()
            Traceback (most recent call last):
              File \"<job>\", line 6, in <module>
                open('')
                ~~~~^^^^
            FileNotFoundError: [Errno 44] No such file or directory: ''
            ",
        )
        .needs(Need::Default),
        completes(
            "
            import datetime, time
            d = datetime.datetime(2024, 1, 2, 3, 4)
            [d.strftime('%I:%M %P'), d.strftime('%l:%M'), d.strftime('100%'), d.strftime('%^a %-d|%_m|%5d'),
             f'{d.date():%e %h %Q}', time.strftime('%k%n%t%G-W%V-%u %#p', d.timetuple()), d.strftime('%s %%P')]
            ",
            json!([
                "03:04 am", " 3:04", "100%", "TUE 2| 1|00002", " 2 Jan %Q", " 3\n\t2024-W01-2 am",
                "1704164640 %P"
            ]),
            "['03:04 am', ' 3:04', '100%', 'TUE 2| 1|00002', ' 2 Jan %Q', ' 3\\n\\t2024-W01-2 am', '1704164640 %P']",
        ),
        completes(
            "
            import pandas
            pandas.Series(pandas.to_datetime(['2024-01-02 15:04'])).dt.strftime('%-d %l %P').tolist()
            ",
            json!(["2  3 pm"]),
            "['2  3 pm']",
        )
        .needs(Need::Default),
        exits(
            "
            import sys
            def hook(kind, error, trace):
                print('HOOK', kind.__name__, error, trace.tb_lineno)
                sys.exit(4)
            sys.excepthook = hook
            raise KeyError('k')
            ",
            4,
        )
        .stdout("HOOK KeyError 'k' 6\n"),
        raises(
            "
            import atexit, sys
            sys.excepthook = lambda kind, error, trace: print('hook')
            atexit.register(print, 'exit')
            raise KeyError('k')
            ",
            "KeyError",
            "'k'",
        )
        .traceback("")
        .stdout("hook\nexit\n"),
        gives_none(
            "
            import sys
            sys.unraisablehook = lambda raised: print('unraisable', raised.exc_type.__name__)
            class A:
                def __del__(self): 1 / 0
            A()
            None
            ",
        )
        .stdout("unraisable ZeroDivisionError\n"),
        completes(
            "
            import hashlib
            [hashlib.pbkdf2_hmac('sha256', b'password', b'salt', 1000).hex()[:16],
             hashlib.scrypt(b'p', salt=b's', n=16, r=8, p=1).hex()[:16]]
            ",
            json!(["632c2812e46d4604", "4efe92b5bba5ee18"]),
            "['632c2812e46d4604', '4efe92b5bba5ee18']",
        ),
        completes(
            "
            import numpy as np
            a = np.arange(3, dtype='float32')
            a.tofile('a.bin')
            with open('b.bin', 'wb') as file: a[1:].tofile(file)
            a.tofile('c.txt', sep=',')
            with open('a.bin', 'rb') as file: parts = np.fromfile(file, 'f4', 1), np.fromfile(file, 'f4')
            read = [*parts, np.fromfile('b.bin', 'f4'), np.fromfile('a.bin', 'f4', 1, offset=4),
                    np.fromfile('c.txt', sep=',')]
            import os
            for name in 'a.bin', 'b.bin', 'c.txt': os.remove(name)
            read[0][0] = 5
            [part.tolist() for part in read]
            ",
            json!([[5.0], [1.0, 2.0], [1.0, 2.0], [1.0], [0.0, 1.0, 2.0]]),
            "[[5.0], [1.0, 2.0], [1.0, 2.0], [1.0], [0.0, 1.0, 2.0]]",
        ),
        completes(
            "
            import signal, time, traceback
            class Late(Exception): pass
            def handler(number, frame):
                names = [frame.name for frame in traceback.extract_stack(frame)]
                raise Late(f'{number} in {[name for name in names if name[-1:] == \"s\"]}')
            def spins():
                while True: pass
            def sleeps(): time.sleep(1000)
            def limited(call):
                signal.signal(signal.SIGALRM, handler)
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                try:
                    call()
                except Late as late:
                    return str(late), len(traceback.extract_tb(late.__traceback__))
            [limited(spins), limited(sleeps), signal.alarm(9), signal.alarm(0)]
            ",
            json!([["14 in ['spins']", 3], ["14 in ['sleeps']", 3], 0, 9]),
            "[(\"14 in ['spins']\", 3), (\"14 in ['sleeps']\", 3), 0, 9]",
        )
        .needs(Need::Default),
        completes(
            "
            import signal
            seen = []
            signal.signal(signal.SIGALRM, lambda number, frame: seen.append(frame.f_code.co_name))
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            while len(seen) < 5: pass
            signal.setitimer(signal.ITIMER_REAL, 0)[1], seen[:5]
            ",
            json!([0.001, ["<module>", "<module>", "<module>", "<module>", "<module>"]]),
            "(0.001, ['<module>', '<module>', '<module>', '<module>', '<module>'])",
        )
        .needs(Need::Default),
        completes(
            "
            import http.client, os, smtplib, ssl, urllib.request
            context = ssl.create_default_context()
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            connection = http.client.HTTPSConnection('h', context=context)
            try:
                connection.connect()
            except OSError as error:
                said = 'the sandbox has no network' in str(error)
            opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
            [context.check_hostname, context.verify_mode.name, connection.port, said,
             issubclass(ssl.SSLCertVerificationError, OSError), smtplib.SMTP_SSL.__name__]
            ",
            json!([true, "CERT_REQUIRED", 443, true, true, "SMTP_SSL"]),
            "[True, 'CERT_REQUIRED', 443, True, True, 'SMTP_SSL']",
        )
        .needs(Need::Default),
        completes(
            "
            import fcntl, getpass, grp, os, pwd, resource, syslog, termios, time
            with open('lock', 'w') as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.remove('lock')
            read, write = os.pipe()
            with open(write, 'w') as end:
                print('through', file=end)
            with open(read) as end:
                line = end.read()
            before = time.process_time()
            time.sleep(0.3)
            cpu = 0 < time.thread_time() - before < 0.2 and time.process_time_ns() > 0
            cpu = cpu and time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) > 0
            [getpass.getuser(), pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name, line, cpu,
             resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 1000, os.path.expanduser('~root') == os.environ['HOME']]
            ",
            json!(["root", "root", "root", "through\n", true, true, true]),
            "['root', 'root', 'root', 'through\\n', True, True, True]",
        )
        .needs(Need::Default),
        completes(
            "
            import fcntl, os
            with open('a', 'w+') as file:
                copies = [fcntl.fcntl(file, command, 0) for command in (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC)]
                for copy in copies:
                    os.write(copy, b'by a copy ')
                    os.close(copy)
                file.seek(0)
                read, numbers = file.read(), {file.fileno(), *copies}
            os.remove('a')
            [len(numbers), read]
            ",
            json!([3, "by a copy by a copy "]),
            "[3, 'by a copy by a copy ']",
        )
        .needs(Need::Default),
        completes("__file__, __name__", json!(["/workspace/main.py", "__main__"]), "('/workspace/main.py', '__main__')"),
        completes(
            "
            import os
            import numpy as np
            a = np.memmap('a', dtype='u1', mode='w+', shape=(2, 3))
            a[1] = 7
            a.flush()
            b = np.memmap('a', dtype='u1', mode='r', shape=(2, 3))
            np.save('b.npy', np.arange(3))
            c = np.load('b.npy', mmap_mode='r+')
            c[0] = 9
            del c
            said = [open('a', 'rb').read()[3], int(b.sum()), b.flags.writeable, int(np.load('b.npy')[0])]
            os.remove('a')
            os.remove('b.npy')
            said
            ",
            json!([7, 21, false, 9]),
            "[7, 21, False, 9]",
        )
        .needs(Need::Default),
        completes(
            "
            import os
            saved = os.dup(1)
            with open('captured', 'w+') as file:
                os.dup2(file.fileno(), 1)
                print('one')
                os.write(1, b'two')
                os.dup2(saved, 1)
                print('after')
                os.close(saved)
                with os.fdopen(os.dup(file.fileno())) as other:
                    said = [os.lseek(file.fileno(), 0, os.SEEK_CUR), file.seek(0), other.read()]
            os.remove('captured')
            said
            ",
            json!([7, 0, "one\ntwo"]),
            "[7, 0, 'one\\ntwo']",
        )
        .stdout("after\n"),
        completes(
            "
            from multiprocessing.shared_memory import SharedMemory, ShareableList
            one = SharedMemory(create=True, size=10)
            other = SharedMemory(one.name)
            one.buf[:2] = b'ab'
            shared = ShareableList([1, 'two', None], name='a list')
            said = [bytes(other.buf[:3]).decode(), other.size, list(ShareableList(name='a list'))]
            one.close()
            other.close()
            shared.shm.close()
            one.unlink()
            shared.shm.unlink()
            try: SharedMemory('a list')
            except FileNotFoundError: said.append('gone')
            said
            ",
            json!(["ab\0", 10, [1, "two", null], "gone"]),
            "['ab\\x00', 10, [1, 'two', None], 'gone']",
        )
        .needs(Need::Default),
        completes(
            "
            import os, subprocess, sys
            open('child.py', 'w').write('import sys; print(__name__, sys.argv[1:]); sys.exit(3)')
            ends = []
            for words in ['-c', 'import os; print(os.getcwd()); x'], ['child.py', 'a'], ['-m', 'child']:
                end = subprocess.run([sys.executable, *words], capture_output=True, text=True)
                ends.append([end.returncode, end.stdout, end.stderr.splitlines()[-1:]])
            ends.append(subprocess.check_output('python3 -c \"print(6 * 7)\"', shell=True).decode())
            with subprocess.Popen(['python', '-'], stdin=-1, stdout=-1, text=True) as child:
                ends += child.communicate('print(input, end=str())')
            try: subprocess.run(['python', '-c', 'while True: pass'], timeout=0.01)
            except subprocess.TimeoutExpired as error: ends.append(str(error))
            subprocess.call(['python', '-c', 'print(1)'])
            os.remove('child.py')
            ends
            ",
            json!([
                [1, "/workspace\n", ["NameError: name 'x' is not defined"]],
                [3, "__main__ ['a']\n", []],
                [3, "__main__ []\n", []],
                "42\n",
                "<built-in function input>",
                null,
                "Command '['python', '-c', 'while True: pass']' timed out after 0.01 seconds",
            ]),
            "[[1, '/workspace\\n', [\"NameError: name 'x' is not defined\"]], [3, \"__main__ ['a']\\n\", []], [3, '__main__ []\\n', []], '42\\n', '<built-in function input>', None, \"Command '['python', '-c', 'while True: pass']' timed out after 0.01 seconds\"]",
        )
        .stdout("1\n")
        .needs(Need::Default),
        completes(
            "
            import os, subprocess as s
            os.mkdir('inner')
            open('names', 'w').write('bob\\nada\\n')
            ends = [s.run('sort names | head -n 1; exit 3', shell=True, capture_output=True, text=True)]
            ends += [s.run(['wc', '-c'], input=b'four', stdout=-1), s.run(['ls', '-a'], cwd='inner', stdout=-1, text=True)]
            ends = [[end.args, end.returncode, str(end.stdout), end.stderr] for end in ends]
            for words, most in (['nosuch'], None), (['false'], None), (['sleep', '9'], 0.01):
                try: s.run(words, check=True, timeout=most)
                except Exception as error: ends.append([type(error).__name__, getattr(error, 'filename', None), getattr(error, 'returncode', None)])
            ends += [os.system('mkdir made && exit 2'), os.path.isdir('made'), os.popen('echo $0; nosuch 2>&1 | wc -l').read()]
            with s.Popen('cat; echo err >&2', shell=True, stdin=-1, stdout=-1, stderr=-1, text=True, env={'A': 'x'}) as child:
                ends += child.communicate('in')
            child = s.Popen(['cat'], stdin=-1, stdout=-1)
            child.stdin.write(b'late')
            try: child.stdout.read()
            except OSError as error: ends.append('runs a child to its end once' in str(error))
            ends += [child.communicate()[0].decode(), s.getstatusoutput('printf a; false')]
            os.remove('names'), os.rmdir('made'), os.rmdir('inner')
            ends
            ",
            json!([["sort names | head -n 1; exit 3", 3, "ada\n", ""], [["wc", "-c"], 0, "b'4\\n'", null], [["ls", "-a"], 0, ".\n..\n", null], ["FileNotFoundError", "nosuch", null], ["CalledProcessError", null, 1], ["TimeoutExpired", null, null], 512, true, "/bin/sh\n1\n", "in", "err\n", true, "late", [1, "a"]]),
            "[['sort names | head -n 1; exit 3', 3, 'ada\\n', ''], [['wc', '-c'], 0, \"b'4\\\\n'\", None], [['ls', '-a'], 0, '.\\n..\\n', None], ['FileNotFoundError', 'nosuch', None], ['CalledProcessError', None, 1], ['TimeoutExpired', None, None], 512, True, '/bin/sh\\n1\\n', 'in', 'err\\n', True, 'late', (1, 'a')]",
        )
        .needs(Need::Default),
        raises(
            "import os\nos.fork()",
            "OSError",
            "[Errno 52] the sandbox has no processes: use threads or asyncio for concurrent waits, \
             several jobs for parallel computation, and subprocess for Python and the commands of its \
             shell",
        )
        .needs(Need::Default),
    ]
}
