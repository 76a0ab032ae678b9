//! A client of another ORB: omniORB, in C++, built from the same IDL during the demo.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::process::Process;
use super::record::Record;
use crate::Result;

pub(super) const NAME: &str = "omniorb";

const IDL: &str = include_str!("../../avionics.idl");
const SOURCE: &str = include_str!("../../omniorb/ground_link.cc");

/// Builds the client in `folder`, unless it was already built from the same sources.
///
/// # Errors
/// The reason why the client cannot be built.
pub(super) fn build(folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("ground_link");
    let shown = |error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(shown)?;
    let mut fresh = program.exists();
    for (name, text) in [("avionics.idl", IDL), ("ground_link.cc", SOURCE)] {
        let file = folder.join(name);
        if fs::read(&file).is_ok_and(|old| old == text.as_bytes()) {
            continue;
        }
        fresh = false;
        fs::write(file, text).map_err(shown)?;
    }
    if fresh {
        return Ok(program);
    }
    if program.exists() {
        fs::remove_file(&program).map_err(shown)?;
    }
    println!("building a client with omniORB (this once)");
    run(folder, "omniidl", &["-bcxx", "avionics.idl"])?;
    let sources = ["ground_link.cc", "avionicsSK.cc"];
    let options = ["-std=c++17", "-O1", "-w", "-pthread", "-o", "ground_link.new"];
    let libraries = ["-lomniORB4", "-lomnithread"];
    run(folder, "g++", &[&options[..], &sources, &libraries].concat())?;
    // The program gets its final name when it is complete, so an interrupted build leaves no file
    // of this name.
    fs::rename(folder.join("ground_link.new"), &program).map_err(shown)?;
    Ok(program)
}

fn run(folder: &Path, tool: &str, arguments: &[&str]) -> Result<(), String> {
    let log = folder.join(format!("{tool}.log"));
    let shown = |error| format!("{}: {error}", log.display());
    let file = File::create(&log).map_err(shown)?;
    let mut command = Command::new(tool);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.stdout(file.try_clone().map_err(shown)?).stderr(file);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{tool} fails, see {} (Debian: omniidl, libomniorb4-dev, g++)", log.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("{tool} is not installed")),
        Err(error) => Err(format!("{tool} does not start: {error}")),
    }
}

pub(super) fn start(program: &Path, computer: &str, recorder: &str, seconds: u32, folder: &Path) -> Result<Process> {
    let mut command = Command::new(program);
    command.args([computer, recorder, &seconds.to_string()]);
    Process::start(NAME, &mut command, folder)
}

pub(super) fn record() -> Record {
    Record::new(NAME, "assess, from C++", 10, None)
}
