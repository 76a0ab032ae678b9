//! Rules about the source text itself: how long a file may be, and where `unsafe` may stand.

use std::fs;
use std::path::{Path, PathBuf};

/// A file may have this many lines besides its tests.
const LONGEST: usize = 900;

/// The only place for `unsafe`.
const UNSAFE_HOME: &str = "crates/sys/";

/// Every violation in the Rust files that belong to the workspace, and how many files were read.
pub(crate) fn check(root: &Path) -> Result<(Vec<String>, usize), String> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut found = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        found.extend(too_long(&name, &text));
        found.extend(unsafe_outside(&name, &text));
    }
    Ok((found, files.len()))
}

/// The Rust files below `folder`, build output and hidden folders left out.
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
    (!is_test && lines > LONGEST).then(|| {
        format!(
            "{name} has {lines} lines besides its tests; {LONGEST} is the limit: give its concepts files of their own"
        )
    })
}

/// Lines outside `#[cfg(test)] mod NAME { ... }` blocks that stand at the left margin, as rustfmt lays them out.
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

/// The text with comments, strings and character literals blanked out; lines stay where they are.
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
    // `br"..."` and `cr"..."` are raw strings too; any other letter before the r makes it part of a name.
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

/// The length of a raw string that begins here, or 0.
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

/// The length of a character literal that begins here, or 0 for a lifetime.
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
    fn the_line_is_named_and_the_home_is_free() {
        let text = "/* one\ntwo */\nunsafe fn f() {}\n";
        assert_eq!(
            unsafe_outside("crates/net/src/a.rs", text),
            ["crates/net/src/a.rs:3: `unsafe` outside crates/sys/"]
        );
        assert!(unsafe_outside("crates/sys/src/a.rs", text).is_empty());
    }
}
