//! The floors of the crate, held by a test: a file imports its own floor and lower ones, never a higher one.
//!
//! The check reads the text of `src`, comments, strings and `#[cfg(test)]` code taken out, and follows `crate::`,
//! `self::` and `super::` paths wherever they stand, groups included. Besides the floors it holds what belongs to a
//! place: unsafe code to the ring, a clock to `time`, loom and shuttle to `sync`, metrics to `telemetry`, tracing to
//! `events`, purity to floor 3.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use tokens::{Token, after, before, closing, tokens};

#[path = "layers/tokens.rs"]
mod tokens;

/// The modules of each floor, from the ground up. A file that none of them names fails the check.
const FLOORS: [&[&str]; 8] = [
    &["sync", "time", "error", "panics", "splitmix", "thread"],
    &["ring"],
    &["gate", "state", "ledger", "receipt", "spread"],
    &["strategy", "pace", "retry", "retry_after", "drain_rate", "sojourn"],
    &["core", "batch", "flight", "report", "telemetry", "health", "events", "explain"],
    &["sink", "flusher", "pull"],
    &["builder", "controller", "dead_letters", "push", "permit", "flush", "drain", "watch"],
    &["adapt", "guide", "test_util"],
];

/// The floor of pure decisions: no atomics, no tokio, no clock.
const PURE: usize = 3;

/// The highest floor may also use the crate by its public face, as its users do.
const TOP: usize = FLOORS.len() - 1;

/// A file has fewer lines than this, its documentation included.
const LINES: usize = 600;

#[test]
fn no_file_imports_upward() -> io::Result<()> {
    let files = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))?;
    let report = check_all(&files);

    assert!(files.iter().any(|(path, _)| path == "lib.rs"), "the sources were not found");
    assert!(
        report.imports > files.len() / 2,
        "{} imports in {} files: the check is blind",
        report.imports,
        files.len()
    );
    let list: String = report.faults.iter().map(|fault| format!("  {fault}\n")).collect();
    assert!(list.is_empty(), "{} faults:\n{list}", report.faults.len());
    Ok(())
}

/// What is wrong, and where.
#[derive(Debug, PartialEq)]
struct Fault {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src/{}:{}: {}", self.path, self.line, self.what)
    }
}

#[derive(Debug, Default)]
struct Report {
    faults: Vec<Fault>,
    /// How many paths from the crate's root were followed.
    imports: usize,
}

/// Checks a whole tree of (path below `src`, text).
fn check_all(files: &[(String, String)]) -> Report {
    let tests: BTreeSet<String> = files.iter().flat_map(|(path, text)| test_files(path, text)).collect();
    let mut report = Report::default();
    for (path, text) in files {
        let found = check(path, text, tests.contains(path));
        report.faults.extend(found.faults);
        report.imports += found.imports;
    }
    report
}

/// Checks one file. `test` says that it is compiled for tests only, which may import what they like.
fn check(path: &str, text: &str, test: bool) -> Report {
    let mut checker = Checker { path, floor: floor(path), report: Report::default() };
    let all = tokens(text);
    checker.whole_file(text, &all);
    if !test {
        let (code, _) = without_tests(&all);
        checker.imports(&code);
        checker.places(&code);
    }
    checker.report
}

/// The floor of a file, `None` for one that belongs to none. The root stands above all floors.
fn floor(path: &str) -> Option<usize> {
    match modules(path).first() {
        None => Some(FLOORS.len()),
        Some(module) => floor_of(module),
    }
}

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// The module path of a file: `pace/fixed.rs` is `["pace", "fixed"]`, `pace/mod.rs` is `["pace"]`, `lib.rs` is the root.
fn modules(path: &str) -> Vec<&str> {
    let mut names: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if names.last() == Some(&"mod") || names == ["lib"] {
        names.pop();
    }
    names
}

struct Checker<'a> {
    path: &'a str,
    floor: Option<usize>,
    report: Report,
}

impl Checker<'_> {
    fn fault(&mut self, line: usize, what: String) {
        self.report.faults.push(Fault { path: self.path.to_owned(), line, what });
    }

    /// What holds for test code too.
    fn whole_file(&mut self, text: &str, all: &[Token<'_>]) {
        if self.floor.is_none() {
            self.fault(1, "belongs to no floor: give its module one in tests/layers.rs".to_owned());
        }
        let lines = text.lines().count();
        if lines >= LINES {
            self.fault(lines, format!("{lines} lines: a file has fewer than {LINES}"));
        }
        let in_ring = self.path == "ring.rs" || self.path.starts_with("ring/");
        for (i, token) in all.iter().enumerate() {
            match token.text {
                "unsafe" if !in_ring => self.fault(token.line, "unsafe outside the ring".to_owned()),
                "path" if before(all, i) == "[" && after(all, i) == "=" => {
                    self.fault(token.line, "a module by #[path], which this check can't follow".to_owned());
                }
                "self" if before(all, i) == "crate" => {
                    self.fault(token.line, "the crate by a name of its own, which hides imports".to_owned());
                }
                _ => {}
            }
        }
    }

    /// Follows every path that begins at `crate`, `self` or `super`.
    fn imports(&mut self, code: &[Token<'_>]) {
        let depth = modules(self.path).len();
        // For each open brace, whether it is a module's.
        let mut braces = Vec::new();
        for (i, token) in code.iter().enumerate() {
            match token.text {
                "{" => braces.push(i >= 2 && code[i - 2].text == "mod"),
                "}" => {
                    braces.pop();
                }
                "crate" | "self" | "super" if after(code, i) == "::" && before(code, i) != "::" => {
                    let level = depth + braces.iter().filter(|module| **module).count();
                    for (line, name) in targets(code, i, level) {
                        self.import(line, name);
                    }
                }
                _ => {}
            }
        }
    }

    /// One path that leads from the root to `name`.
    fn import(&mut self, line: usize, name: &str) {
        self.report.imports += 1;
        let Some(own) = self.floor else { return };
        match floor_of(name) {
            _ if own > TOP => {}
            Some(other) if other > own => {
                self.fault(line, format!("upward import: `{name}` is on floor {other}, this file on floor {own}"));
            }
            None if own < TOP => {
                self.fault(line, format!("`crate::{name}` names no floor: import it from the module that defines it"));
            }
            _ => {}
        }
    }

    /// What may be named in one place only.
    fn places(&mut self, code: &[Token<'_>]) {
        let pure = self.floor == Some(PURE);
        for (i, token) in code.iter().enumerate() {
            let (name, line) = (token.text, token.line);
            let leads = after(code, i) == "::" || before(code, i) == "use";
            let elapsed =
                name == "elapsed" && before(code, i) == "." && after(code, i) == "(" && after(code, i + 1) == ")";
            let clock = elapsed || name == "now" && before(code, i) == "::";
            if clock && self.path != "time.rs" {
                self.fault(line, format!("`{name}` calls a clock outside time.rs"));
            }
            if matches!(name, "loom" | "shuttle") && leads && self.path != "sync.rs" {
                self.fault(line, format!("only sync.rs knows {name}"));
            }
            if name == "metrics" && leads && self.path != "telemetry.rs" {
                self.fault(line, "only telemetry.rs names metrics".to_owned());
            }
            if name == "tracing" && leads && self.path != "events.rs" {
                self.fault(line, "only events.rs names tracing".to_owned());
            }
            if pure && (name == "tokio" || name == "atomic" || name.starts_with("Atomic") || name == "Clock") {
                self.fault(line, format!("`{name}` on the floor of pure decisions"));
            }
        }
    }
}

/// The names that the path at `at` reaches directly below the root, for a module `level` steps below it.
fn targets<'a>(code: &[Token<'a>], at: usize, level: usize) -> Vec<(usize, &'a str)> {
    let Some(token) = code.get(at) else { return Vec::new() };
    let next = after(code, at) == "::";
    match token.text {
        "crate" if next => targets(code, at + 2, 0),
        "self" if next => targets(code, at + 2, level),
        "super" if next => targets(code, at + 2, level.saturating_sub(1)),
        "{" => members(code, at).into_iter().flat_map(|member| targets(code, member, level)).collect(),
        name if level == 0 => vec![(token.line, name)],
        _ => Vec::new(),
    }
}

/// Where the members of the group begin that opens at `open`.
fn members(code: &[Token<'_>], open: usize) -> Vec<usize> {
    let mut depth = 0_usize;
    let mut starts = Vec::new();
    for (i, token) in code.iter().enumerate().skip(open) {
        match token.text {
            "{" => depth += 1,
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 1 && matches!(token.text, "{" | ",") && !matches!(after(code, i), "}" | "") {
            starts.push(i + 1);
        }
    }
    starts
}

/// The files that `#[cfg(test)] mod name;` in this one brings in.
fn test_files(path: &str, text: &str) -> Vec<String> {
    let (_, names) = without_tests(&tokens(text));
    let folder = modules(path).iter().map(|name| format!("{name}/")).collect::<String>();
    names.iter().flat_map(|name| [format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")]).collect()
}

/// Takes out what is compiled for tests only; the second list has the names of its out-of-line modules.
fn without_tests<'a>(code: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<&'a str>) {
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut i = 0;
    while i < code.len() {
        let inner = code[i].text == "#" && after(code, i) == "!";
        let open = i + 1 + usize::from(inner);
        if code[i].text == "#" && before(code, open + 1) == "[" {
            let close = closing(code, open);
            if is_test(&code[open + 1..close]) {
                if inner && kept.is_empty() {
                    return (kept, modules);
                }
                let end = item_end(code, close + 1);
                if let [.., module, name, semicolon] = &code[close + 1..end] {
                    if module.text == "mod" && semicolon.text == ";" {
                        modules.push(name.text);
                    }
                }
                i = end;
                continue;
            }
        }
        kept.push(code[i]);
        i += 1;
    }
    (kept, modules)
}

/// Whether an attribute is `cfg(test)` or `cfg(all(..., test, ...))`; `any` and `not` also hold outside of tests.
fn is_test(attribute: &[Token<'_>]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| token.text).collect();
    match words.as_slice() {
        ["cfg", "(", "test", ")"] => true,
        ["cfg", "(", "all", "(", conditions @ .., ")", ")"] => {
            let mut depth = 0_i32;
            conditions.iter().enumerate().any(|(i, word)| {
                depth += i32::from(*word == "(") - i32::from(*word == ")");
                *word == "test" && depth == 0 && conditions.get(i + 1).is_none_or(|next| *next == ",")
            })
        }
        _ => false,
    }
}

/// One past the end of the item, statement, field or argument that begins at `start`, further attributes included.
fn item_end(code: &[Token<'_>], start: usize) -> usize {
    let mut start = start;
    while code.get(start).is_some_and(|token| token.text == "#") {
        start = closing(code, start + 1) + 1;
    }
    // A comma ends a field, a variant or an argument, but not an item: there it stands between generic parameters.
    let mut first = start;
    if code.get(first).is_some_and(|token| token.text == "pub") {
        first += 1;
        if code.get(first).is_some_and(|token| token.text == "(") {
            first = closing(code, first) + 1;
        }
    }
    let listed = !matches!(
        code.get(first).map_or("", |token| token.text),
        "async"
            | "const"
            | "enum"
            | "extern"
            | "fn"
            | "impl"
            | "let"
            | "macro_rules"
            | "mod"
            | "static"
            | "struct"
            | "trait"
            | "type"
            | "union"
            | "unsafe"
            | "use"
    );
    let mut i = start;
    while i < code.len() {
        match code[i].text {
            "(" | "[" => i = closing(code, i),
            "{" if listed || before(code, i) != "::" => return closing(code, i) + 1,
            "{" => i = closing(code, i),
            ";" => return i + 1,
            "," if listed => return i + 1,
            ")" | "]" | "}" => return i,
            _ => {}
        }
        i += 1;
    }
    i
}

/// The Rust files below a folder, by their path below it.
fn read(root: &Path) -> io::Result<Vec<(String, String)>> {
    let (mut files, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(root).map_err(io::Error::other)?;
                files.push((below.to_string_lossy().replace('\\', "/"), fs::read_to_string(&path)?));
            }
        }
    }
    files.sort();
    Ok(files)
}

// The check itself: that it sees what it is there for, and nothing else.

/// The faults of a file with this text, each as its line and what is wrong.
fn faults(path: &str, text: &str) -> Vec<String> {
    check(path, text, false).faults.iter().map(|fault| format!("{}: {}", fault.line, fault.what)).collect()
}

#[track_caller]
fn assert_found(path: &str, text: &str, needle: &str) {
    let found = faults(path, text);
    assert!(found.len() == 1 && found[0].contains(needle), "{path} {text:?} gave {found:?}, not {needle:?}");
}

#[track_caller]
fn assert_clean(path: &str, text: &str) {
    assert_eq!(faults(path, text), Vec::<String>::new(), "{path} {text:?}");
}

#[test]
fn an_upward_import_is_found_however_it_is_written() {
    let found = |path, text| assert_found(path, text, "upward import");
    found("ring.rs", "use crate::core::Core;");
    found("ring/place.rs", "use crate::gate::Gate;");
    found("error.rs", "pub(crate) use crate::ring as r;");
    found("strategy/mod.rs", "use crate::{error::Full, time::Tick, batch::Batch};");
    found("pace/fixed.rs", "use crate::{\n    error::{A, B},\n    sink::{self, BatchSink},\n};");
    found("batch.rs", "fn f() -> u8 { crate :: flusher :: f() }");
    found("core.rs", "macro_rules! m { () => { $crate::adapt::f() } }");
    found("gate.rs", "use super::strategy::Strategy;");
    found("pace/adaptive/slots.rs", "use super::super::super::{state::State, watch::Watch};");
    found("pace/mod.rs", "use super::{self::controller, retry};");
    found("state.rs", "mod inner { use super::super::watch::Watch; }");
    found("state.rs", "mod inner { use super::Cell; }\nuse super::watch::Watch;");
    found("time.rs", "use crate::r#push::Push;");
    found("time.rs", "fn f(c: char) { if c == '\\'' || c == '\"' { crate::push::f() } }");
    found("time.rs", "fn f<'a>(x: &'a str) { crate::push::f(x, \"{\") }");
    found("time.rs", "#[cfg(any(test, feature = \"x\"))] use crate::push::Push;");
    found("time.rs", "#[cfg(not(test))] use crate::push::Push;");
    found("time.rs", "#[cfg(test)] use crate::push::A;\nuse crate::push::B;");
    found("time.rs", "#[cfg(test)] mod tests { fn f() {} }\nuse crate::push::B;");
    found("time.rs", "struct S { #[cfg(test)] a: A, b: crate::push::B }");
    assert_eq!(
        faults("ring.rs", "\n\nuse crate::core::Core;"),
        ["3: upward import: `core` is on floor 4, this file on floor 1"]
    );
}

#[test]
fn a_way_around_the_floors_is_found() {
    assert_found("gate.rs", "use crate::*;", "names no floor");
    assert_found("gate.rs", "use crate::BackpressureController;", "names no floor");
    assert_found("gate.rs", "#[path = \"../other.rs\"] mod other;", "#[path]");
    assert_found("lib.rs", "extern crate self as me;", "name of its own");
    assert_found("other.rs", "", "belongs to no floor");
    assert_found("other/deep.rs", "use crate::adapt::X;", "belongs to no floor");
}

#[test]
fn imports_within_a_floor_and_downward_are_fine() {
    assert_clean("core.rs", "use crate::{batch::Batch, ring::Ring, error, sync::{AtomicU64, Mutex}};");
    assert_clean("pace/fixed.rs", "use super::{Pace, super::retry::Retry};\nuse self::inner::push;");
    assert_clean("state.rs", "mod inner { use super::controller; }");
    assert_clean("flusher.rs", "use tokio::sync::watch;\nuse std::{push, adapt::x};");
    assert_clean("adapt/stream.rs", "use crate::{BackpressureController, push::Push};");
    assert_clean("lib.rs", "mod adapt;\npub use crate::adapt::X;\npub use self::core::Y;");
}

#[test]
fn comments_strings_and_tests_may_name_what_they_like() {
    assert_clean(
        "time.rs",
        "//! [`crate::push`]\n/// crate::push /* \n/* crate::push /* unsafe */ crate::push */ // Instant::now",
    );
    assert_clean(
        "time.rs",
        r####"const A: &str = "crate::push \" unsafe"; const B: &str = r##"crate::push "# "##;"####,
    );
    assert_clean("gate.rs", "#[cfg(test)] mod tests { use crate::push::Push; fn f() { Instant::now(); } }");
    assert_clean("gate.rs", "#[cfg(all(test, not(backpressure_loom)))] #[allow(x)] use crate::push::{A, B};");
    assert_clean("gate.rs", "#[cfg(test)] pub(crate) fn f<A, B>(x: [u8; 2]) -> u8 { crate::push::f() }");
    assert_clean("gate.rs", "#![cfg(test)] use crate::push::Push;");

    let parent = ("ring.rs".to_owned(), "#[cfg(all(test, backpressure_loom))] mod loom;".to_owned());
    let child = ("ring/loom.rs".to_owned(), "use crate::core::Core;".to_owned());
    assert_eq!(check_all(&[parent, child.clone()]).faults, []);
    assert_eq!(check_all(&[child]).faults.len(), 1);
}

#[test]
fn what_belongs_to_one_place_is_found_elsewhere() {
    assert_found("gate.rs", "fn f() { unsafe { g() } }", "unsafe");
    assert_found("gate.rs", "#[cfg(test)] mod tests { unsafe fn f() {} }", "unsafe");
    assert_clean("ring.rs", "unsafe fn f() {}");
    assert_clean("ring/slot.rs", "unsafe fn f() {}");
    assert_found("flusher.rs", "let t = std::time::Instant::now();", "clock");
    assert_found("flusher.rs", "use std::time::Instant as I; fn f() { I::now(); }", "clock");
    assert_found("flusher.rs", "let t = start.elapsed();", "clock");
    assert_clean("time.rs", "let t = tokio::time::Instant::now();");
    assert_clean("flusher.rs", "let t = clock.now();");
    assert_found("core.rs", "metrics::counter!(\"x\");", "metrics");
    assert_found("core.rs", "use metrics as m;", "metrics");
    assert_clean("telemetry.rs", "use metrics::counter;");
    assert_found("flusher.rs", "tracing::warn!(\"x\");", "tracing");
    assert_clean("events.rs", "use tracing::warn;");
    assert_found("gate.rs", "loom::thread::yield_now();", "loom");
    assert_clean("sync.rs", "loom::thread::yield_now();");
    assert_found("gate.rs", "shuttle::thread::yield_now();", "shuttle");
    assert_found("error.rs", &"\n".repeat(LINES), "600 lines");
    assert_clean("error.rs", &"\n".repeat(LINES - 1));
}

#[test]
fn the_floor_of_decisions_is_pure() {
    assert_found("strategy/mod.rs", "use tokio::time::sleep;", "pure decisions");
    assert_found("pace/mod.rs", "use std::sync::{Arc, atomic};", "pure decisions");
    assert_found("pace/mod.rs", "use crate::sync::AtomicU64;", "pure decisions");
    assert_found("retry.rs", "use crate::time::Clock;", "pure decisions");
    assert_found("retry.rs", "fn f() { Instant::now(); }", "clock");
    assert_clean("retry.rs", "use crate::time::Tick;\nuse std::cmp::Ordering;");
    assert_clean("retry.rs", "#[cfg(test)] mod tests { use tokio::time::sleep; }");
}
