//! The command `corelane config import`, which converts the options of other ORBs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};

use clap::{ArgMatches, Command};

use super::orb_options::{ForeignOrb, ImportTarget, Imported, Malformed, takes_value};
use super::{MAX_FILE, USAGE};
use crate::arguments::{self, option};
use crate::text::{excerpt, printable};
use crate::{DONE, NOT_DONE, WRONG_USAGE};

pub(super) fn command() -> Command {
    arguments::command("import", USAGE).args([
        option("for", "programs|commands"),
        option("from", "omniorb|tao"),
        arguments::positionals("FILE"),
    ])
}

pub(super) fn split(words: Vec<OsString>) -> (Vec<OsString>, Vec<(usize, String)>) {
    let (mut own, mut of_orb) = (Vec::new(), Vec::new());
    let mut words = words.into_iter().enumerate();
    while let Some((number, word)) = words.next() {
        let text = word.to_string_lossy();
        if text.starts_with("-ORB") {
            let values = if takes_value(&text) { 1 } else { 0 };
            of_orb.push((number, text.into_owned()));
            of_orb.extend(words.by_ref().take(values).map(|(at, value)| (at, value.to_string_lossy().into_owned())));
        } else {
            own.push(word);
        }
    }
    (own, of_orb)
}

pub(super) fn run(parsed: &ArgMatches, words: Vec<(usize, String)>, out: &mut dyn Write) -> u8 {
    let refuse = |reason: String, out: &mut dyn Write| arguments::print_refusal(Some(reason), USAGE, out);
    let orb = match arguments::text(parsed, "from").as_deref() {
        None => None,
        Some("omniorb") => Some(ForeignOrb::OmniOrb),
        Some("tao") => Some(ForeignOrb::Tao),
        Some(other) => return refuse(format!("`{}` is not an ORB: omniorb or tao", excerpt(other)), out),
    };
    let target = match arguments::text(parsed, "for").as_deref() {
        None | Some("programs") => ImportTarget::Programs,
        Some("commands") => ImportTarget::Commands,
        Some(other) => return refuse(format!("`{}` has no configuration: programs or commands", excerpt(other)), out),
    };
    let files = arguments::texts(parsed, "FILE");
    if files.is_empty() && words.is_empty() {
        return refuse("no file and no -ORB option is given".to_owned(), out);
    }
    let paths: Vec<&OsString> = parsed.get_many("FILE").into_iter().flatten().collect();
    match import(&paths, words, orb, target) {
        Ok(imported) => {
            let names: Vec<String> = files.iter().map(|name| format!("`{}`", excerpt(name))).collect();
            print(&imported, &names, target, out);
            DONE
        }
        Err((status, reason)) => {
            let _ = writeln!(io::stderr(), "error: {reason}");
            status
        }
    }
}

/// Converts the options of the files and of the words. The error is an exit status and a message
/// for the user.
fn import(
    paths: &[&OsString],
    words: Vec<(usize, String)>,
    orb: Option<ForeignOrb>,
    target: ImportTarget,
) -> Result<Imported, (u8, String)> {
    let mut imported = Imported::new(target);
    for (source, path) in paths.iter().enumerate() {
        let name = excerpt(&path.to_string_lossy());
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text));
        match read {
            Err(error) => return Err((NOT_DONE, format!("`{name}` cannot be read: {error}"))),
            Ok(length) if length as u64 > MAX_FILE => {
                return Err((NOT_DONE, format!("`{name}` holds more than {MAX_FILE} octets")));
            }
            Ok(_) => {}
        }
        imported
            .read_text(source, &String::from_utf8_lossy(&text), orb)
            .map_err(|malformed| (WRONG_USAGE, message(&format!("{name}:{}", malformed.line), &malformed)))?;
    }
    imported
        .take_words(paths.len(), words, orb)
        .map_err(|malformed| (WRONG_USAGE, message(&format!("argument {}", malformed.line), &malformed)))?;
    imported.finish();
    Ok(imported)
}

fn message(place: &str, malformed: &Malformed) -> String {
    format!("{place}: `{}`: {}", printable(&malformed.text), malformed.reason)
}

/// Prints the converted options. The other options are listed on the standard error, with reasons.
fn print(imported: &Imported, names: &[String], target: ImportTarget, out: &mut dyn Write) {
    let source = if names.is_empty() { "-ORB options".to_owned() } else { names.join(", ") };
    let (reader, owner) = match target {
        ImportTarget::Programs => ("`-ORBconfig` of a program names this file", "The configuration of programs has"),
        ImportTarget::Commands => ("CORELANE_CONFIG names this file", "The commands have"),
    };
    let mut text = format!("# Converted from {source} by `corelane config import`. {reader}.\n");
    let tables = imported.to_toml();
    if tables.is_empty() {
        text += &format!("# {owner} no counterpart of any of the options.\n");
    }
    text += &tables;
    let _ = out.write_all(text.as_bytes());
    let mut lines = String::new();
    for one in imported.left_out() {
        let place = match names.get(one.place.source) {
            Some(name) => format!("{}:{}", name.trim_matches('`'), one.place.line),
            None => format!("argument {}", one.place.line),
        };
        lines += &format!("{place}: `{}` is not carried over: {}\n", printable(&one.option), printable(&one.reason));
    }
    let _ = io::stderr().write_all(lines.as_bytes());
}
