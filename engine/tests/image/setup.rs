//! What exists before the first job: modules and the results of a setup, the same for every job.

use engine::{
    CacheDir, EngineConfig, Image, ImageError, ImageSpec, Setup, add_image, find_image, images,
    remove_image,
};
use serde_json::json;

use crate::support::{copying_engine, engine, load_or_build, mapped, program, turn, value};

const SETUP: &str = r"
import logging, os
logging.basicConfig(filename='/tmp/jobs.log', filemode='w', level='INFO')
names = ['set', 'up']
counts = {}
def count(name):
    counts[name] = counts.get(name, 0) + 1
    return dict(counts)
os.makedirs('/workspace/data')
with open('/workspace/data/table.csv', 'w') as table:
    table.write('a,b\n1,2\n')
reader = open('/workspace/data/table.csv')
reader.readline()
log = open('/tmp/log', 'w+b')
log.write(b'begun')
print('said by the setup')
";

/// Looks at all of it, then spoils it.
const JOB: &str = r"
logging.info('heard')
seen = [
    list(names), count('job'), reader.readline(), open('data/table.csv').read(), log.tell(),
    __name__, sorted(os.listdir('/workspace')), os.getcwd(), 'spoilt' in globals(),
    open('/tmp/jobs.log').read(),
]
spoilt = True
names.append('by a job')
log.write(b' and more')
log.flush()
reader.close()
os.remove('data/table.csv')
os.rename('data', 'other')
def count(name): return 'spoilt'
seen
";

fn spec(source: &str, preload: &[&str]) -> ImageSpec {
    let setup = Setup { source: source.to_owned(), filename: "prepare.py".to_owned() };
    let preload = preload.iter().map(|name| (*name).to_owned()).collect();
    ImageSpec { preload, setup: Some(setup), ..ImageSpec::default() }
}

fn cache() -> CacheDir {
    let folder = EngineConfig::from_env().cache_dir;
    CacheDir::open(folder.as_deref()).expect("the engine was loaded from there")
}

/// An image that no other test uses. Removed from the cache at the end.
pub(crate) struct OwnImage {
    pub(crate) image: Image,
}

impl OwnImage {
    pub(crate) fn new(spec: &ImageSpec) -> Self {
        Self { image: load_or_build(engine(), spec).expect("the setup succeeds") }
    }
}

impl Drop for OwnImage {
    fn drop(&mut self) {
        let removed = remove_image(&cache(), &self.image.info().key);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

#[test]
fn each_job_finds_what_the_setup_left_as_it_left_it() {
    let spec = spec(SETUP, &["json"]);
    let own = OwnImage::new(&spec);
    let copied = load_or_build(copying_engine(), &spec).unwrap();
    assert_eq!(copied.info().key, own.image.info().key);
    let expected = json!([
        ["set", "up"], {"job": 1}, "1,2\n", "a,b\n1,2\n", 5, "__main__", ["data"],
        "/workspace", false, "INFO:root:heard\n"
    ]);
    for (kind, image) in [("mapped", &own.image), ("copied", &copied)] {
        let mut slot = image.start().unwrap();
        for round in 0..3 {
            assert_eq!(value(&mut slot, JOB), expected, "{kind}, round {round}");
            assert_eq!(value(&mut slot, "count('job')"), json!("spoilt"), "a session sees its own");
            slot.reset().unwrap();
            assert!(slot.is_as_image(), "{kind}");
        }
    }
}

#[test]
fn an_image_says_what_it_was_made_of_and_is_found_in_the_cache() {
    let own = OwnImage::new(&spec("found = 'in the cache'", &["json", "string"]));
    let info = own.image.info();
    assert_eq!(info.preload, ["json", "string"]);
    assert_eq!(info.setup.as_deref(), Some("prepare.py"));
    assert_ne!(info.key, mapped().info().key);
    assert!(info.memory_bytes > 10 << 20 && info.file_bytes > 10 << 20, "{info:?}");
    assert_eq!(find_image(&cache(), &info.key).unwrap().key, info.key);
    let keys: Vec<String> = images(&cache()).unwrap().into_iter().map(|image| image.key).collect();
    assert!(keys.contains(&info.key) && keys.contains(&mapped().info().key), "{keys:?}");
    let again = load_or_build(engine(), &spec("found = 'in the cache'", &["json", "string"]));
    assert_eq!(again.unwrap().info().created, info.created, "it isn't made twice");
    // Interpreters can still begin from a removed image.
    let removed = load_or_build(engine(), &spec("found = 'removed'", &[])).unwrap();
    remove_image(&cache(), &removed.info().key).unwrap();
    assert!(find_image(&cache(), &removed.info().key).is_err());
    let mut slot = removed.start().unwrap();
    slot.reset().unwrap();
    assert_eq!(value(&mut slot, "found"), json!("removed"));
}

/// Returns the bytes with each occurrence of one text replaced by another one of the same length.
fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut replaced = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = replaced[at..].windows(from.len()).position(|it| it == from.as_bytes())
    {
        at += found;
        replaced[at..at + from.len()].copy_from_slice(to.as_bytes());
    }
    assert_ne!(at, 0, "nothing was replaced");
    replaced
}

#[test]
fn an_image_of_another_machine_is_only_that_of_a_spec_that_names_it() {
    let honest = spec("word = 'an honest word'", &[]);
    let own = OwnImage::new(&honest);
    let word = |spec: &ImageSpec| {
        let image = load_or_build(engine(), spec).unwrap();
        let word = value(&mut image.start().unwrap(), "word");
        (image.info().key.clone(), word)
    };
    // It claims to be the same: its header has the same key.
    let bytes = std::fs::read(own.image.info().path.as_ref().unwrap()).unwrap();
    let bytes = replaced(&bytes, "an honest word", "no honest word");
    let added = add_image(&cache(), &bytes).unwrap();
    assert_eq!(add_image(&cache(), &bytes).unwrap(), added, "it is there already");
    assert_eq!(find_image(&cache(), &added.key).unwrap(), added);
    let named = |spec: &ImageSpec| ImageSpec { added: Some(added.key.clone()), ..spec.clone() };
    let key = own.image.info().key.clone();
    assert_eq!(word(&named(&honest)), (key.clone(), json!("no honest word")));
    assert_eq!(word(&honest), (key.clone(), json!("an honest word")));
    remove_image(&cache(), &key).unwrap();
    assert_eq!(word(&honest), (key.clone(), json!("an honest word")), "it was made again");
    // One that was made of something else isn't used, nor one that is gone.
    let other = spec("word = 'another one'", &[]);
    assert_eq!(word(&named(&other)).1, json!("another one"));
    remove_image(&cache(), &added.key).unwrap();
    assert_eq!(word(&named(&honest)), (key, json!("an honest word")));
    remove_image(&cache(), &load_or_build(engine(), &other).unwrap().info().key).unwrap();
    for cut in [0, 7, 40, 100, bytes.len() - 1] {
        let refused = add_image(&cache(), &bytes[..cut]).unwrap_err();
        assert!(matches!(refused, ImageError::NoImage), "{refused}");
    }
}

#[test]
fn an_added_image_with_a_damaged_header_costs_an_error_at_most() {
    let spec = spec("damaged = 'not yet'", &[]);
    let own = OwnImage::new(&spec);
    let bytes = std::fs::read(own.image.info().path.as_ref().unwrap()).unwrap();
    let header = 32..32 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let (mut refused, mut used) = (0, 0);
    for (round, at) in header.step_by(13).enumerate() {
        let mut bytes = bytes.clone();
        bytes[at] ^= [1, 0x80, 0xff, 0x7f][round % 4];
        let Ok(added) = add_image(&cache(), &bytes) else {
            refused += 1;
            continue;
        };
        let spec = ImageSpec { added: Some(added.key.clone()), ..spec.clone() };
        let image = load_or_build(engine(), &spec).unwrap();
        if image.info().path == added.path {
            used += 1;
            let _ = image.start().map(|mut slot| {
                turn(
                    &mut slot,
                    &program("import random; random.random(); open('/tmp/f', 'w').write(damaged)"),
                )
            });
        }
        remove_image(&cache(), &added.key).unwrap();
    }
    assert!(refused > 0 && used > 0, "{refused} refused, {used} used");
}

/// Returns why no image can be built from this.
fn refusal(spec: &ImageSpec) -> String {
    match load_or_build(engine(), spec) {
        Err(error @ ImageError::Prepare { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_setup_that_fails_says_where() {
    let raises =
        "import sys\ndef f(x):\n    return 1 / x\nprint('on the way', file=sys.stderr)\nf(0)";
    let text = refusal(&spec(raises, &[]));
    for expected in [
        "File \"prepare.py\", line 5, in <module>",
        "File \"prepare.py\", line 3, in f",
        "ZeroDivisionError",
        "on the way",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = refusal(&spec("x = 1\ndef f(:", &[]));
    assert!(text.contains("SyntaxError") && text.contains("File \"prepare.py\", line 2"), "{text}");
    let text = refusal(&spec("import os; os._exit(3)", &[]));
    assert!(text.contains("code 3"), "{text}");
}

#[test]
fn a_module_that_is_not_there_is_named() {
    let unknown = ImageSpec { preload: vec!["no_such_module".to_owned()], ..ImageSpec::default() };
    let text = refusal(&unknown);
    assert!(text.contains("No module named 'no_such_module'"), "{text}");
    let preload = vec!["json".to_owned(), "import os".to_owned()];
    let error =
        load_or_build(engine(), &ImageSpec { preload, ..ImageSpec::default() }).unwrap_err();
    assert!(matches!(error, ImageError::ModuleName(..)), "{error}");
    assert!(error.to_string().contains("`import os`"), "{error}");
}
