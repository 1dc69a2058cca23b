//! What programs import, and which of it an image should have imported before they do.
//!
//! An image pays if it saves more time than it takes to make. The modules of the table below can be imported
//! in an image without a program that notices (`hatchery/_hidden.py`): they print nothing, start nothing, and
//! what they change outside of themselves can be undone.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::LazyLock;
use std::thread::available_parallelism;

/// CPU time to make an image, beyond that of its imports, in milliseconds.
const IMAGE_MS: u64 = 1_500;
/// How much longer imports take while it is recorded what they bring, in percent.
const RECORDING_PERCENT: u64 = 130;

/// Modules that an image has together.
struct Family {
    /// The names by which programs import them, without what follows a dot. With each, the CPU time that
    /// it typically saves them, in milliseconds, beyond that of other families.
    names: Vec<(&'static str, u64)>,
    modules: Vec<&'static str>,
    /// CPU time to import all modules, in milliseconds.
    all_ms: u64,
    /// Whether they are common packages, which the build lacks.
    is_common: bool,
}

/// A family has its place with the time of all, names, and modules. Later families may need earlier
/// ones.
const TABLE: &str = "\
build 350: argparse=4 asyncio=52 calendar=4 concurrent=8 configparser=3 csv=1 decimal=9 doctest=92
email=25 fractions=4 ftplib=8 glob=2 hashlib=2 html=6 http=26 inspect=7 ipaddress=3 logging=8
multiprocessing=18 pickle=3 platform=2 random=2 shutil=5 smtplib=25 socket=3 sqlite3=2 ssl=7
statistics=14 subprocess=10 tarfile=10 tempfile=8 threading=2 typing=5 unittest=66 urllib=38
uuid=2 xml=6 zipfile=11: argparse ast asyncio bisect calendar cmath collections.abc
concurrent.futures configparser contextlib copy csv dataclasses datetime decimal difflib doctest
email.mime.multipart email.mime.text enum fractions ftplib functools getpass glob gzip hashlib
heapq hmac html.parser http.client http.server inspect ipaddress itertools json locale logging
math mimetypes multiprocessing multiprocessing.pool operator pathlib pickle platform pprint queue
random secrets shutil smtplib socket sqlite3 ssl statistics string struct subprocess tarfile
tempfile textwrap threading time timeit typing unicodedata unittest unittest.mock urllib.error
urllib.parse urllib.request uuid xml.dom.minidom xml.etree.ElementTree zipfile zlib;
build 200: numpy=90: numpy numpy.fft numpy.linalg numpy.ma numpy.random numpy.testing;
build 50: dateutil=30: dateutil.parser dateutil.relativedelta dateutil.tz;
build 20: regex=15: regex;
build 20: yaml=20: yaml;
build 60: tqdm=50: tqdm;
build 50: PIL=20: PIL.Image PIL.ImageDraw PIL.ImageFilter PIL.ImageOps;
build 100: lxml=25: lxml.etree lxml.html;
build 160: bs4=150: bs4;
build 50: xmltodict=45: xmltodict;
build 50: tabulate=45: tabulate;
build 65: jinja2=60: jinja2;
build 260: openpyxl=250: openpyxl;
build 65: xlsxwriter=65: xlsxwriter;
build 560: sympy=550: sympy;
build 310: networkx=300: networkx;
build 500: pandas=480: pandas pandas.testing;
build 1500: scipy=550: scipy.cluster.hierarchy scipy.fft scipy.integrate scipy.interpolate
scipy.linalg scipy.ndimage scipy.optimize scipy.signal scipy.sparse scipy.spatial scipy.special
scipy.stats;
build 900: matplotlib=800: matplotlib.pyplot matplotlib.backends.backend_agg matplotlib.colors
matplotlib.dates matplotlib.patches;
build 1900: sklearn=1600: sklearn.cluster sklearn.datasets sklearn.decomposition sklearn.ensemble
sklearn.feature_extraction.text sklearn.impute sklearn.linear_model sklearn.metrics
sklearn.model_selection sklearn.naive_bayes sklearn.neighbors sklearn.pipeline
sklearn.preprocessing sklearn.svm sklearn.tree;
build 1500: seaborn=700: seaborn;
build 1400: statsmodels=900: statsmodels.api statsmodels.formula.api statsmodels.tsa.seasonal;
common 400: requests=390: requests;
common 210: werkzeug=200: werkzeug.security;
common 500: flask=490: flask;
common 500: flask_login=20: flask_login;
common 500: flask_mail=20: flask_mail;
common 500: flask_restful=20: flask_restful;
common 90: wtforms=90: wtforms;
common 800: django=500: django.conf django.http;
common 430: faker=430: faker;
common 40: pytz=40: pytz;
common 310: holidays=300: holidays;
common 270: docx=260: docx;
common 70: psutil=70: psutil;
common 80: cryptography=70: cryptography.fernet;
common 120: chardet=110: chardet;
common 50: rsa=45: rsa;
common 900: geopy=800: geopy.distance geopy.geocoders;
common 1200: folium=600: folium;
common 140: xlwt=130: xlwt;
common 3500: nltk=1500: nltk;
common 1500: xarray=900: xarray;
common 900: sqlalchemy=890: sqlalchemy";

impl Family {
    /// Returns this part of the time to import all modules, in milliseconds.
    fn ms(&self, percent: u64) -> u64 {
        self.all_ms * percent / 100
    }
}

static FAMILIES: LazyLock<Vec<Family>> =
    LazyLock::new(|| TABLE.split(';').filter_map(family).collect());

/// Reads an entry of the table.
fn family(text: &'static str) -> Option<Family> {
    let [place, names, modules] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
    let (place, all_ms) = place.trim().split_once(' ')?;
    let names = names.split_whitespace().map(|name| {
        let (name, ms) = name.split_once('=')?;
        Some((name, ms.parse().ok()?))
    });
    Some(Family {
        names: names.collect::<Option<_>>()?,
        modules: modules.split_whitespace().collect(),
        all_ms: all_ms.parse().ok()?,
        is_common: place == "common",
    })
}

/// How many programs import each module of a table, with what that costs them.
///
/// ```
/// use hatchery::Hatchery;
/// use hatchery::image::ProgramImports;
///
/// let mut imports = ProgramImports::default();
/// for program in ["import numpy as np", "from pandas import DataFrame"] {
///     imports.add(program);
/// }
/// let builder = Hatchery::builder().preload_for(imports);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ProgramImports {
    programs: u64,
    /// By the family's place in the table: CPU time that an image saves all programs, in milliseconds.
    saved_ms: BTreeMap<usize, u64>,
}

impl ProgramImports {
    /// Counts the imports in a program's source. Those by `importlib` and in strings don't count.
    pub fn add(&mut self, source: &str) {
        self.programs += 1;
        let mut names = imported(source);
        names.sort_unstable();
        names.dedup();
        for name in names {
            for (place, family) in FAMILIES.iter().enumerate() {
                if let Some((_, ms)) = family.names.iter().find(|(known, _)| *known == name) {
                    *self.saved_ms.entry(place).or_default() += ms;
                }
            }
        }
    }

    /// Returns the modules that an image should hide for these programs: an image that is cached, or one
    /// that saves more time than it takes to make while `at_once` programs would run.
    pub(crate) fn hidden(
        &self,
        has_common: bool,
        at_once: usize,
        is_cached: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        for least_percent in [0, RECORDING_PERCENT] {
            let some = modules(&self.saving(has_common, least_percent));
            if !some.is_empty() && is_cached(&some) {
                return some;
            }
        }
        self.beyond(&[], has_common, at_once)
    }

    /// As [`Self::hidden`], for programs that have an image which hides `present`: returns nothing
    /// unless what that lacks pays for another image of all.
    pub(crate) fn beyond(
        &self,
        present: &[String],
        has_common: bool,
        at_once: usize,
    ) -> Vec<String> {
        let paying = self.saving(has_common, RECORDING_PERCENT);
        let lacks = |family: &Family| !present.iter().any(|name| *name == family.modules[0]);
        let lacking = paying.iter().filter(|(family, _)| lacks(family));
        let saved: u64 = lacking.map(|(_, saved)| saved).sum();
        let cost: u64 = paying.iter().map(|(family, _)| family.ms(RECORDING_PERCENT)).sum();
        let at_once = (at_once as u64).min(self.programs).max(1);
        if saved / at_once > cost + IMAGE_MS { modules(&paying) } else { Vec::new() }
    }

    /// Returns the families that save more than this part of the time of their imports.
    fn saving(&self, has_common: bool, percent: u64) -> Vec<(&'static Family, u64)> {
        let known = self.saved_ms.iter().map(|(place, saved)| (&FAMILIES[*place], *saved));
        let known = known.filter(|(family, _)| has_common || !family.is_common);
        known.filter(|(family, saved)| *saved > family.ms(percent)).collect()
    }
}

/// Returns how many programs could run while an image is made.
pub(crate) fn at_once() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

fn modules(families: &[(&Family, u64)]) -> Vec<String> {
    families.iter().flat_map(|(family, _)| &family.modules).map(|&name| name.to_owned()).collect()
}

/// Returns the names that a program imports, each up to its first dot.
fn imported(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut words = Words { rest: source };
    let mut word = words.next();
    while let Some(current) = word {
        word = words.next();
        match current {
            "from" => {
                let module = word;
                // `yield from f(x)` and `raise X from Y` have no `import` behind them.
                word = words.find(|word| !is_name(word) && *word != "." || *word == "import");
                if word == Some("import") {
                    names.extend(module.filter(|name| is_name(name)));
                    word = words.next();
                }
            }
            "import" => loop {
                names.extend(word.filter(|name| is_name(name)));
                word = words.find(|word| matches!(*word, "," | "\n" | ";"));
                if word != Some(",") {
                    break;
                }
                word = words.next();
            },
            _ => {}
        }
    }
    names
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first == '_' || first.is_alphabetic())
}

/// The names, signs and line ends of a program, without its strings and comments.
struct Words<'source> {
    rest: &'source str,
}

impl<'source> Iterator for Words<'source> {
    type Item = &'source str;

    fn next(&mut self) -> Option<&'source str> {
        loop {
            let first = self.rest.chars().next()?;
            let in_name = |character: char| character == '_' || character.is_alphanumeric();
            let end = match first {
                '#' => self.rest.find('\n').unwrap_or(self.rest.len()),
                '"' | '\'' => string_end(self.rest),
                '\\' => 1 + self.rest[1..].chars().next().map_or(0, char::len_utf8),
                _ if in_name(first) => {
                    self.rest.find(|other| !in_name(other)).unwrap_or(self.rest.len())
                }
                _ => first.len_utf8(),
            };
            let (word, rest) = self.rest.split_at(end);
            self.rest = rest;
            let is_blank = first != '\n' && first.is_whitespace();
            if !is_blank && !matches!(first, '#' | '"' | '\'' | '\\') {
                return Some(word);
            }
        }
    }
}

/// Returns where the string ends that a text begins with.
fn string_end(text: &str) -> usize {
    let quote = &text[..1];
    let quotes =
        if text.starts_with(&quote.repeat(3)) { quote.repeat(3) } else { quote.to_owned() };
    let mut at = quotes.len();
    while let Some(next) = text[at..].chars().next() {
        if text[at..].starts_with(&quotes) {
            return at + quotes.len();
        }
        if next == '\n' && quotes.len() == 1 {
            // It isn't closed.
            return at;
        }
        at += next.len_utf8();
        if next == '\\' {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_wherever_they_stand() {
        for (source, expected) in [
            ("import numpy as np, pandas.testing\nimport os", "numpy pandas os"),
            ("from scipy.stats import norm; import sympy", "scipy sympy"),
            ("from a import (\n  b,\n  c,\n)\nimport d", "a d"),
            (
                "def f():\n    import csv\n    try: import yaml\n    except ImportError: pass",
                "csv yaml",
            ),
            ("if x: from bs4 import BeautifulSoup", "bs4"),
            ("'import a'; \"\"\"\nimport b\n\"\"\"; # import c\nimport d", "d"),
            ("s = 'it\\'s' ; import e", "e"),
            ("s = 'open\nimport e", "e"),
            ("from . import a\nfrom .b import c\nfrom ..d import e", ""),
            ("def g():\n    yield from h(x)\n    raise A from B\nimport i", "i"),
            ("raise A from B; import c", "c"),
            ("x.important = fromage", ""),
            ("from \\\n  a import b", "a"),
            ("import", ""),
            ("from", ""),
            ("é = 'ü' ; import ñ", "ñ"),
            ("\"", ""),
            ("\\", ""),
        ] {
            assert_eq!(imported(source).join(" "), expected, "{source}");
        }
    }

    fn imports(sources: &[(&str, usize)]) -> ProgramImports {
        let mut imports = ProgramImports::default();
        for (source, count) in sources {
            (0..*count).for_each(|_| imports.add(source));
        }
        imports
    }

    #[test]
    fn an_image_is_made_if_it_saves_more_than_it_costs() {
        let hidden =
            |sources: &[(&str, usize)], at_once| imports(sources).hidden(false, at_once, |_| false);
        for count in [0, 1, 3] {
            assert!(hidden(&[("import pandas", count)], 1).is_empty(), "{count}");
        }
        assert_eq!(hidden(&[("import pandas", 9)], 1), ["pandas", "pandas.testing"]);
        assert!(hidden(&[("import pandas", 9)], 4).is_empty(), "making it would take longer");
        assert!(hidden(&[("print(1)", 100_000)], 1).is_empty());
        let some = hidden(&[("import pandas", 20), ("import sympy", 1)], 1);
        assert!(!some.contains(&"sympy".to_owned()), "only one program imports it");
    }

    #[test]
    fn an_image_that_is_cached_costs_nothing() {
        let one = imports(&[("import sympy", 1)]);
        assert_eq!(one.hidden(false, 8, |_| true), ["sympy"]);
        let none = imports(&[("import antigravity", 1)]);
        assert!(none.hidden(false, 8, |_| true).is_empty());
    }

    #[test]
    fn another_image_is_made_if_what_the_first_one_lacks_pays_for_all() {
        let beyond = |sources: &[(&str, usize)], present: &[&str]| {
            let present: Vec<_> = present.iter().map(|&name| name.to_owned()).collect();
            imports(sources).beyond(&present, false, 1).join(" ")
        };
        let both = [("import pandas", 1_000), ("import sympy", 9)];
        assert_eq!(beyond(&both, &[]), "sympy pandas pandas.testing");
        assert_eq!(beyond(&both, &["pandas"]), beyond(&both, &[]));
        assert_eq!(beyond(&[("import pandas", 1_000), ("import sympy", 5)], &["pandas"]), "");
        assert_eq!(beyond(&both, &["sympy", "pandas"]), "");
    }

    #[test]
    fn the_table_can_be_read() {
        assert_eq!(FAMILIES.len(), TABLE.split(';').count());
        for family in FAMILIES.iter() {
            assert!(!family.names.is_empty() && !family.modules.is_empty() && family.all_ms > 0);
        }
    }

    #[test]
    fn common_packages_count_where_they_are() {
        let many = imports(&[("import requests", 100)]);
        assert!(many.hidden(false, 1, |_| true).is_empty());
        assert_eq!(many.hidden(true, 1, |_| false), ["requests"]);
    }
}
