//! The prompt on a terminal, simulated by `script` of util-linux; passes without it.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

use crate::text;
use crate::web::Server;

/// How long to wait for output, with room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_U: &str = "\x15";

/// Types at a prompt, and reads its output.
struct Typist {
    child: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    /// Output that hasn't been read yet.
    shown: String,
    _home: TempDir,
}

impl Typist {
    /// Starts a prompt. `None` without `script`.
    fn begin(arguments: &str, variables: &[(&str, &str)]) -> Option<Self> {
        Self::start(&format!("repl {arguments}"), variables)
    }

    /// Starts a command. `None` without `script`.
    fn start(command: &str, variables: &[(&str, &str)]) -> Option<Self> {
        Self::start_after("", command, variables)
    }

    /// Starts a command after one of the shell's. `None` without `script`.
    fn start_after(before: &str, command: &str, variables: &[(&str, &str)]) -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_hatchery");
        let command = format!("{before}\necho process $$; exec '{program}' {command}");
        let mut terminal = Command::new("script");
        terminal
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env("XDG_STATE_HOME", home.path())
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = terminal.spawn().ok()?;
        let (keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Some(Self { child, keys, screen, shown: String::new(), _home: home })
    }

    /// Starts a prompt and waits until it is ready.
    fn at_prompt(arguments: &str) -> Option<Self> {
        let mut typist = Self::begin(arguments, &[])?;
        typist.sees(">>> ");
        Some(typist)
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for this output, and returns what came before it.
    fn sees(&mut self, expected: &str) -> String {
        loop {
            if let Some(at) = self.shown.find(expected) {
                let before = self.shown[..at].to_owned();
                self.shown.drain(..at + expected.len());
                return before;
            }
            let more = self.screen.recv_timeout(PATIENCE);
            let more = more.unwrap_or_else(|_| panic!("{expected:?} isn't in {:?}", self.shown));
            self.shown.push_str(&text(&more));
        }
    }

    /// Returns the id of the process, which must be asked for before anything else.
    fn process(&mut self) -> Pid {
        self.sees("process ");
        Pid::from_raw(self.sees("\r\n").trim().parse().unwrap()).unwrap()
    }

    /// Closes the terminal while the command runs.
    fn closes(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Leaves the prompt, and returns the remaining output.
    fn leaves(mut self) -> String {
        self.types(&format!("{CTRL_U}:quit\r"));
        while let Ok(more) = self.screen.recv_timeout(PATIENCE) {
            self.shown.push_str(&text(&more));
        }
        assert!(self.child.wait().unwrap().success(), "{}", self.shown);
        self.shown
    }
}

/// Returns whether a process ends in time.
fn ends(process: OwnedFd) -> bool {
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&patience)).unwrap() == 1
}

/// What the shell does before a command, and whether the command then hears of a closed terminal.
const HANGUPS: [&str; 2] = [SIZE, "stty cols 100 rows 40; trap '' HUP"];

/// Gives the terminal a size, which it has none by itself.
const SIZE: &str = "stty cols 100 rows 40";

#[test]
fn the_live_view_ends_with_its_terminal() {
    let server = Server::start(&["--workers", "1"]);
    for before in HANGUPS {
        let command = format!("top {}", server.address());
        let Some(mut typist) = Typist::start_after(before, &command, &[]) else { return };
        let process = pidfd_open(typist.process(), PidfdFlags::empty()).unwrap();
        typist.sees("Workers");
        typist.closes();
        assert!(ends(process), "after {before:?}");
    }
}

#[test]
fn the_live_view_ends_by_a_signal_and_restores_the_terminal() {
    let server = Server::start(&["--workers", "1"]);
    let command = format!("top {}", server.address());
    let Some(mut typist) = Typist::start_after(SIZE, &command, &[]) else { return };
    let id = typist.process();
    typist.sees("Workers");
    kill_process(id, Signal::TERM).unwrap();
    // It leaves the other screen.
    typist.sees("\x1b[?1049l");
    assert_eq!(typist.child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_prompt_ends_with_its_terminal_whatever_it_does() {
    for before in HANGUPS {
        for typed in ["", "input('na' + 'me? ')\r", "print('ru' + 'ns')\rwhile True: pass\r\r"] {
            let Some(mut typist) = Typist::start_after(before, "repl --timeout 1h", &[]) else {
                return;
            };
            let process = pidfd_open(typist.process(), PidfdFlags::empty()).unwrap();
            typist.sees(">>> ");
            typist.types(typed);
            match typed {
                "" => {}
                typed if typed.starts_with("input") => drop(typist.sees("name? ")),
                _ => drop(typist.sees("runs")),
            }
            typist.closes();
            assert!(ends(process), "after {before:?}, {typed:?}");
        }
    }
}

#[test]
fn tables_fit_the_terminal() {
    let modules = "json,csv,decimal,fractions,statistics,datetime,calendar,difflib,textwrap,string";
    let made = crate::run(&["image", "build", "--preload", modules]);
    assert!(made.status.success(), "{made:?}");
    let Some(mut typist) = Typist::start_after("stty cols 60", "image list", &[]) else { return };
    typist.process();
    let table = typist.sees("ago\r\n");
    assert!(table.contains("PREL"), "{table}");
    for line in table.lines() {
        assert!(line.chars().count() <= 60, "{line}");
    }
}

#[test]
fn a_burst_of_lines_is_run_whole() {
    let Some(mut typist) = Typist::at_prompt("") else { return };
    typist.types("print('o' + 'ne')\rprint('t' + 'wo')\rprint('th' + 'ree')\r");
    for expected in ["one\r\n", "two\r\n", "three\r\n"] {
        typist.sees(expected);
    }
    // Lines that a program reads come from the same burst.
    typist.types("x, y = input(), input()\rfirst\rsecond\rx + ' ' + y\r");
    typist.sees("'first second'\r\n");
    typist.leaves();
}

#[test]
fn a_program_reads_what_is_typed() {
    let Some(mut typist) = Typist::at_prompt("--timeout 5s") else { return };
    typist.types("print('who', end=': '); name = input('na' + 'me? ')\r");
    typist.sees("who: name? ");
    typist.types("Adx\x7fa\r");
    typist.sees(">>> ");
    typist.types("name + '!'\r");
    typist.sees("'Ada!'");
    typist.types("import sys; sys.stdin.readline()\rline\r");
    typist.sees("'line\\n'");
    // Text pasted at once counts as separate lines.
    typist.types("name, last = input('fir' + 'st? '), input('la' + 'st? ')\r");
    typist.sees("first? ");
    typist.types("\x1b[200~Ada\rLovelace\x1b[201~\r");
    typist.sees("last? Lovelace\r\n");
    typist.types("last * 2\r");
    typist.sees("'LovelaceLovelace'");
    typist.types("if 1: 2/0\r\r");
    typist.sees("ZeroDivisionError");
    typist.sees(">>> ");
    typist.types("name\r");
    typist.sees("'Ada'");
    typist.leaves();
}

#[test]
fn ctrl_c_and_ctrl_d_at_an_input_are_exceptions() {
    let Some(mut typist) = Typist::at_prompt("--grace 100ms") else { return };
    typist.types("x = 1; input('a' + '? ')\r");
    // As the editor draws it: before, Ctrl-C is a signal of the terminal.
    typist.sees("\x1b[Ka? ");
    typist.types(CTRL_C);
    let traceback = typist.sees("\r\nKeyboardInterrupt\r\n");
    assert!(traceback.contains("File \"<input-1>\", line 1, in <module>"), "{traceback}");
    assert_eq!(traceback.matches("File").count(), 1, "{traceback}");
    typist.types("input('b' + '? ')\r");
    typist.sees("\x1b[Kb? ");
    typist.types(CTRL_D);
    typist.sees("EOFError: EOF when reading a line\r\n");
    // As often as the program likes, and for as long.
    typist.types(
        "for n in range(3):\r    try: input(f'{n}? ')\r    except KeyboardInterrupt: x += 1\r\r",
    );
    for n in 0..3 {
        typist.sees(&format!("\r\x1b[K{n}? "));
        typist.types(CTRL_C);
    }
    typist.sees(">>> ");
    typist.types("x * 1000\r");
    typist.sees("4000\r\n");
    typist.leaves();
}

#[test]
fn an_interrupt_from_outside_ends_a_program_that_waits_for_input() {
    let Some(mut typist) = Typist::begin("", &[]) else { return };
    typist.sees("process ");
    let process: u32 = typist.sees("\r\n").trim().parse().unwrap();
    typist.sees(">>> ");
    typist.types("x = 1; input('a' + '? ')\r");
    // As the editor draws it: before, there is no line that the interrupt could leave open.
    typist.sees("\x1b[Ka? ");
    crate::interrupt(process);
    typist.sees("\r\nKeyboardInterrupt\r\n");
    typist.sees("press Enter to continue");
    typist.types("not for Python\r");
    typist.sees(">>> ");
    typist.types("x * 1000\r");
    typist.sees("1000\r\n");
    let shown = typist.leaves();
    assert!(!shown.contains("SyntaxError"), "{shown}");
}

#[test]
fn tab_completes_what_the_session_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a table.csv");
    std::fs::write(&file, "1,2\n").unwrap();
    let Some(mut typist) = Typist::at_prompt("") else { return };
    typist.types("alphabetical = [1000]; import math\r");
    typist.sees(">>> ");
    for (keys, expected) in [
        ("alphab\t[0] + 1\r", "1001\r\n"),
        ("alphabetical.cou\t(1000) + 1001\r", "1002\r\n"),
        ("math.factor\t(6) + 283\r", "1003\r\n"),
        ("(lamb\t: 1004)()\r", "1004\r\n"),
        ("len('x' + 'alphab\t') + 998\r", "1005\r\n"),
        ("if 1:\r\tprint(1006)\r\r", "1006\r\n"),
        (":sess\t\r", "* repl\r\n"),
    ] {
        typist.types(keys);
        typist.sees(expected);
        typist.sees(">>> ");
    }
    let path = folder.path().join("a\t").display().to_string();
    typist.types(&format!(":put {path}\r"));
    typist.sees("put `a table.csv`, 4 bytes");
    // Several completions are listed.
    typist.types("math.cos\t\t");
    typist.sees("cos   cosh");
    typist.leaves();
}

#[test]
fn code_has_colors_where_they_are_wanted() {
    let Some(mut typist) = Typist::at_prompt("") else { return };
    typist.types("x = 'te' + 'xt'  # why\r");
    let shown = typist.sees("\x1b[0;31m# why\x1b[0m");
    assert!(shown.contains("\x1b[0;32m'te'\x1b[0m"), "{shown:?}");
    typist.leaves();
    let mut typist = Typist::begin("", &[("NO_COLOR", "1")]).unwrap();
    typist.sees(">>> ");
    typist.types("x = 'te' + 'xt'; print(x)  # why\r");
    let shown = typist.sees("text\r\n");
    assert!(!shown.contains("\x1b[0;32m"), "{shown:?}");
    typist.leaves();
}

/// Displays a picture of one black pixel.
const PLOT: &str = "import zlib, struct; d = lambda k, b: struct.pack('>I', len(b)) + k + b + \
                    struct.pack('>I', zlib.crc32(k + b)); display({'image/png': \
                    b'\\x89PNG\\r\\n\\x1a\\n' + d(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 0, \
                    0, 0, 0)) + d(b'IDAT', zlib.compress(b'\\0\\0')) + d(b'IEND', b'')}, \
                    raw=True)\r";
#[test]
fn a_plot_is_drawn_where_the_terminal_can() {
    for (protocol, expected) in
        [("kitty", "\x1b_Ga=T,f=100"), ("iterm2", "\x1b]1337;File=inline=1")]
    {
        let Some(mut typist) = Typist::begin("", &[("HATCHERY_PICTURES", protocol)]) else {
            return;
        };
        typist.sees(">>> ");
        typist.types(PLOT);
        typist.sees(expected);
        // The beginning of a PNG in base64.
        typist.sees("iVBORw0KGgo");
        let shown = typist.leaves();
        assert!(!shown.contains("displayed an image"), "{shown}");
    }
    // Elsewhere pictures can be saved.
    let mut typist = Typist::at_prompt("").unwrap();
    typist.types(PLOT);
    typist.sees("displayed an image");
    typist.leaves();
}

#[test]
fn a_program_draws_its_plots_among_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plot.py");
    let plot = PLOT.trim_end();
    std::fs::write(&file, format!("print('before')\n{plot}\nprint('after')\n")).unwrap();
    let command = format!("run {}", file.display());
    let variables = [("HATCHERY_PICTURES", "kitty")];
    let Some(mut typist) = Typist::start(&command, &variables) else { return };
    typist.sees("before");
    typist.sees("iVBORw0KGgo");
    typist.sees("after");
    // Not where nobody looks.
    let output = crate::hatchery().arg("run").arg(&file).envs(variables).output().unwrap();
    assert_eq!(text(&output.stdout), "before\nafter\n");
    assert!(text(&output.stderr).contains("displayed an image"), "{output:?}");
}
