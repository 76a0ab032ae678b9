//! Rules about source files: length, place of `unsafe`, list of integration tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of lines of a file without its unit tests.
const LONGEST: usize = 900;

const UNSAFE_HOME: &str = "crates/sys/";

/// The folder of the integration tests. Cargo does not find them by itself, because they are in
/// folders by subject.
const TESTS: &str = "tests/";

pub(crate) fn check(root: &Path) -> Result<(Vec<String>, usize), String> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut found = Vec::new();
    let mut tests = Vec::new();
    for path in &files {
        let text = read(path)?;
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        found.extend(too_long(&name, &text));
        found.extend(unsafe_outside(&name, &text));
        tests.extend(name.strip_prefix(TESTS).map(str::to_owned));
    }
    let folder = root.join(TESTS);
    found.extend(unlisted_tests(&tests, &read(&folder.join("Cargo.toml"))?, &read(&folder.join("README.md"))?));
    Ok((found, files.len()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, into)?;
            }
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
    Ok(())
}

fn too_long(name: &str, text: &str) -> Option<String> {
    let is_test = name.split('/').any(|part| part == "tests" || part == "tests.rs");
    let lines = lines_without_tests(text);
    (!is_test && lines > LONGEST)
        .then(|| format!("{name} has {lines} lines besides its tests; {LONGEST} is the limit: split it by concept"))
}

/// Returns the number of lines outside blocks of unit tests. rustfmt begins and ends such a block
/// at the left margin.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let mut count = 0;
    let mut at = 0;
    while at < lines.len() {
        let opens = lines[at] == "#[cfg(test)]"
            && lines.get(at + 1).is_some_and(|next| next.contains("mod ") && next.ends_with('{'));
        if opens {
            let length = lines[at..].iter().position(|line| *line == "}");
            at += length.map_or(lines.len(), |length| length + 1);
        } else {
            count += 1;
            at += 1;
        }
    }
    count
}

fn unsafe_outside(name: &str, text: &str) -> Vec<String> {
    if name.starts_with(UNSAFE_HOME) {
        return Vec::new();
    }
    let code = code_only(text);
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let words = line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        if words.into_iter().any(|word| word == "unsafe") {
            found.push(format!("{name}:{}: `unsafe` outside {UNSAFE_HOME}", index + 1));
        }
    }
    found
}

/// Returns the differences between the integration tests, the manifest and the README of tests/.
/// Cargo never compiles a test file without an entry in the manifest.
fn unlisted_tests(files: &[String], manifest: &str, index: &str) -> Vec<String> {
    let is_test = |file: &&String| !file.starts_with("src/") && *file != "build.rs";
    let entries: Vec<&str> = manifest.split("\n[").filter_map(|table| table.strip_prefix("[test]]\n")).collect();
    let rows: Vec<&str> = index.lines().filter(|line| line.starts_with("| [")).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(is_test) {
        let (folder, name) = file.strip_suffix(".rs").and_then(|path| path.rsplit_once('/')).unwrap_or_default();
        if folder.is_empty() || folder.contains('/') {
            found.push(format!("{TESTS}{file} is not in a folder of tests: move it to {TESTS}SUBJECT/"));
            continue;
        }
        let entry = format!("name = \"{name}\"\npath = \"{file}\"");
        if !entries.iter().any(|listed| listed.trim_end() == entry) {
            found.push(format!(
                "{TESTS}{file} never runs: {TESTS}Cargo.toml has no [[test]] of just these lines:\n{entry}"
            ));
        }
        let row = format!("| [`{name}`]({file}) | ");
        if rows.iter().filter(|line| line.starts_with(&row)).count() != 1 {
            found.push(format!("{TESTS}README.md must have exactly one row for {TESTS}{file}: `{row}what it tests |`"));
        }
    }
    for row in rows {
        let file = row.split(['(', ')']).nth(1).unwrap_or_default();
        if !files.iter().any(|there| there == file) {
            found.push(format!("{TESTS}README.md has a row for {file}, which does not exist"));
        }
    }
    found
}

/// Returns the text with blanks in place of comments, strings and character literals. The line
/// numbers stay unchanged.
fn code_only(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let rest = &letters[at..];
        let skip = match rest {
            ['/', '/', ..] => line_comment(rest),
            ['/', '*', ..] => block_comment(rest),
            ['"', ..] => quoted(rest),
            ['r', ..] if !after_word(&code) => raw_string(rest),
            ['\'', ..] => character(rest),
            _ => 0,
        };
        if skip == 0 {
            code.push(letters[at]);
            at += 1;
            continue;
        }
        let skipped = &letters[at..(at + skip).min(letters.len())];
        code.push(' ');
        code.extend(skipped.iter().filter(|letter| **letter == '\n'));
        at += skip;
    }
    code
}

fn after_word(code: &str) -> bool {
    // `br"..."` and `cr"..."` are raw strings; after any other letter the `r` is part of a name.
    let before = code.trim_end_matches(['b', 'c']);
    before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

fn line_comment(rest: &[char]) -> usize {
    rest.iter().position(|letter| *letter == '\n').unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => {
                depth += 1;
                at += 2;
            }
            ['*', '/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn quoted(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a raw string at the beginning of `rest`, or 0.
fn raw_string(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|letter| **letter == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let mut at = 2 + hashes;
    while at < rest.len() {
        if rest[at] == '"' && rest[at + 1..].iter().take_while(|letter| **letter == '#').count() >= hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    rest.len()
}

/// Returns the length of a character literal at the beginning of `rest`, or 0 for a lifetime.
fn character(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', _, more @ ..] => 3 + more.iter().position(|letter| *letter == '\'').map_or(0, |at| at + 1),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_past_the_limit_is_refused_but_its_tests_do_not_count() {
        let body = "fn f() {}\n".repeat(LONGEST);
        assert_eq!(too_long("a.rs", &body), None);
        let tests = format!("{body}#[cfg(test)]\nmod tests {{\n{}}}\n", "    fn t() {}\n".repeat(400));
        assert_eq!(too_long("a.rs", &tests), None);
        let after = format!("{tests}fn more() {{}}\n");
        assert!(too_long("a.rs", &after).unwrap().contains("901 lines"));
        assert_eq!(too_long("crates/x/tests/a.rs", &after), None);
    }

    #[test]
    fn unsafe_is_found_in_code_and_only_there() {
        let at = |text: &str| unsafe_outside("crates/orb/src/lib.rs", text).len();
        assert_eq!(at("fn f() { unsafe { g() } }"), 1);
        assert_eq!(at("#[unsafe(no_mangle)]\nunsafe impl Send for X {}"), 2);
        assert_eq!(at("#![forbid(unsafe_code)] // unsafe\n/* unsafe /* unsafe */ unsafe */"), 0);
        assert_eq!(at("let a = \"unsafe \\\" unsafe\"; let b = r#\"unsafe \" unsafe\"#; let c = br\"unsafe\";"), 0);
        assert_eq!(at("fn f<'a>(x: &'a str) { let q = '\"'; unsafe { } }"), 1);
        assert_eq!(at("let q = '\\''; let p = b'\\u{27}'; unsafe {}"), 1);
    }

    #[test]
    fn integration_test_without_entry_or_row_is_refused() {
        let files = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let entry = |name: &str| format!("\n[[test]]\nname = \"{name}\"\npath = \"wire/{name}.rs\"\n");
        let manifest = format!("[package]\nautotests = false\n{}{}", entry("a"), entry("b"));
        let index =
            "## wire\n| file | what it tests |\n|---|---|\n| [`a`](wire/a.rs) | A. |\n| [`b`](wire/b.rs) | B. |\n";
        let there = files(&["build.rs", "src/lib.rs", "src/bin/peer.rs", "wire/a.rs", "wire/b.rs"]);
        assert_eq!(unlisted_tests(&there, &manifest, index), [""; 0]);

        let first = |files: &[String], manifest: &str, index: &str| unlisted_tests(files, manifest, index).join("; ");
        assert!(first(&there, &manifest.replace(&entry("b"), ""), index).starts_with("tests/wire/b.rs never runs"));
        assert!(first(&there, &manifest.replace("wire/b", "rt/b"), index).starts_with("tests/wire/b.rs never runs"));
        let off = format!("{}test = false\n", manifest.trim_end().to_owned() + "\n");
        assert!(first(&there, &off, index).starts_with("tests/wire/b.rs never runs"));
        let short = index.replace("| [`a`](wire/a.rs) | A. |\n", "");
        assert!(
            first(&there, &manifest, &short)
                .starts_with("tests/README.md must have exactly one row for tests/wire/a.rs")
        );
        assert!(first(&there[..4], &manifest, index).contains("has a row for wire/b.rs, which does not exist"));
        for place in ["c.rs", "wire/common/c.rs", "tests/wire/c.rs"] {
            let outside = first(&files(&["wire/a.rs", "wire/b.rs", place]), &manifest, index);
            assert!(outside.ends_with("is not in a folder of tests: move it to tests/SUBJECT/"), "{outside}");
        }
    }

    #[test]
    fn violation_names_its_line_and_sys_is_exempt() {
        let text = "/* one\ntwo */\nunsafe fn f() {}\n";
        assert_eq!(
            unsafe_outside("crates/net/src/a.rs", text),
            ["crates/net/src/a.rs:3: `unsafe` outside crates/sys/"]
        );
        assert!(unsafe_outside("crates/sys/src/a.rs", text).is_empty());
    }
}
