//! The interface for build scripts: [`Builder`].

use crate::compile::{Compilation, CompileOptions};
use crate::disk::DiskFiles;
use crate::lex::FileSource;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Compiles IDL files in a build script and writes the Rust code to `OUT_DIR`.
///
/// ```no_run
/// // In the `main` of build.rs:
/// corelane_idl::Builder::new().include("idl").compile("idl/echo.idl");
/// ```
///
/// The program then includes the code with `corelane::include_idl!("echo")`.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    options: CompileOptions,
    output: Option<PathBuf>,
}

impl Builder {
    /// Creates a builder without search folders or macros.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a search folder for included files. Folders are searched in the order in which they
    /// were added.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.include.push(folder.into());
        self
    }

    /// Defines a preprocessor macro with this value.
    #[must_use]
    pub fn define(mut self, name: &str, value: &str) -> Self {
        self.options.defines.push(format!("{name}={value}"));
        self
    }

    /// Accepts features of IDL 4 that CORBA 3 forbids, such as empty structures and octets as
    /// discriminators of unions.
    #[must_use]
    pub fn idl_4(mut self) -> Self {
        self.options.is_idl_4_enabled = true;
        self
    }

    /// Treats names that differ only in case as different names, with a warning. IDL forbids such
    /// names, but some published IDL has them.
    #[must_use]
    pub fn case_sensitive(mut self) -> Self {
        self.options.is_case_sensitive = true;
        self
    }

    /// Lets generated structures, unions, enumerations, exceptions and values derive a trait of
    /// another crate, such as `serde::Serialize`. The crate that includes the generated code must
    /// depend on the crate of the trait.
    ///
    /// A type that contains, for example, a sequence of octets, an object reference, an `any` or a
    /// fixed-point number is generated without the derivation.
    #[must_use]
    pub fn derive(mut self, path: &str) -> Self {
        self.options.derives.push(path.to_owned());
        self
    }

    /// Makes generated code refer to existing Rust code of an IDL module or file.
    ///
    /// `idl` is an IDL module (`Shared`, `A::B`) or a file (`shared.idl`). `rust` is the path of
    /// the Rust module with the existing code.
    ///
    /// ```no_run
    /// // shared.idl has `module Shared { struct Point { .. }; };`, and the crate `shapes` includes its code in `shapes::idl`.
    /// corelane_idl::Builder::new().external("Shared", "shapes::idl::shared").compile("idl/drawing.idl");
    /// ```
    ///
    /// The code of both crates must come from the same version of the compiler and of the shared
    /// IDL.
    #[must_use]
    pub fn external(mut self, idl: &str, rust: &str) -> Self {
        self.options.externals.push((idl.to_owned(), rust.to_owned()));
        self
    }

    /// Writes the output to this folder instead of `OUT_DIR`.
    #[must_use]
    pub fn output(mut self, folder: impl Into<PathBuf>) -> Self {
        self.output = Some(folder.into());
        self
    }

    /// Compiles a file: `idl/echo.idl` becomes `echo.rs` and `idl/shop.v2.idl` becomes
    /// `shop.v2.rs`. An unchanged output file is not rewritten. Tells cargo to run the script again
    /// when an input file outside of `OUT_DIR` changes.
    ///
    /// If the file is refused, prints the errors and ends the build script with exit status 1.
    pub fn compile(&self, file: impl AsRef<Path>) -> &Self {
        if let Err(message) = self.try_compile(file.as_ref()) {
            eprint!("{message}");
            std::process::exit(1);
        }
        self
    }

    /// Compiles a file as [`compile`](Self::compile) does, but returns the message instead of
    /// printing it.
    ///
    /// # Errors
    ///
    /// A message of several lines, if the file cannot be read, the file is refused, the output
    /// cannot be written, or the output would overwrite the output of another file that this thread
    /// compiled.
    pub fn try_compile(&self, file: &Path) -> Result<PathBuf, String> {
        let mut compilation = Compilation::from_file(file, &self.options)
            .map_err(|error| format!("error: cannot read `{}`: {error}\n", file.display()))?;
        let out_dir = std::env::var_os("OUT_DIR").map(PathBuf::from);
        for path in compilation.files_read().filter(|path| !is_generated(path, out_dir.as_deref())) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        let rust = if compilation.is_accepted() { compilation.to_rust() } else { String::new() };
        let messages = compilation.diagnostics.render(&compilation.sources, false);
        if !compilation.is_accepted() {
            return Err(messages);
        }
        for line in messages.lines() {
            println!("cargo:warning={line}");
        }
        let folder = match &self.output {
            Some(folder) => folder.clone(),
            None => std::env::var_os("OUT_DIR").ok_or("error: OUT_DIR is not set: is this a build script?\n")?.into(),
        };
        let target = folder.join(output_name(file));
        claim(file, &target)?;
        write_if_changed(&target, &rust)
            .map_err(|error| format!("error: cannot write `{}`: {error}\n", target.display()))?;
        Ok(target)
    }
}

/// Returns true for a file in `OUT_DIR`, which a run of the build script may change. If cargo
/// watched the file, cargo would then run the script and build the package again.
fn is_generated(path: &Path, out_dir: Option<&Path>) -> bool {
    out_dir.is_some_and(|folder| path.starts_with(folder))
}

thread_local! {
    static WRITTEN: RefCell<HashMap<PathBuf, PathBuf>> = RefCell::new(HashMap::new());
}

pub(crate) fn output_name(file: &Path) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(".rs");
    name.into()
}

fn claim(file: &Path, target: &Path) -> Result<(), String> {
    let source = DiskFiles.identity(file);
    let first = WRITTEN.with_borrow_mut(|written| written.entry(target.to_owned()).or_insert(source.clone()).clone());
    if first == source {
        return Ok(());
    }
    let (first, file) = (first.display(), file.display());
    Err(format!("error: `{first}` and `{file}` would both become `{}`\n", target.display()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Changed,
    Same,
}

/// Writes a file unless it already has this content, because cargo compiles a rewritten file again.
pub(crate) fn write_if_changed(path: &Path, text: &str) -> std::io::Result<WriteOutcome> {
    if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(WriteOutcome::Same);
    }
    std::fs::write(path, text)?;
    Ok(WriteOutcome::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idl_in_out_dir_counts_as_generated() {
        let out_dir = Some(Path::new("/build/out"));
        assert!(is_generated(Path::new("/build/out/wide.idl"), out_dir));
        assert!(!is_generated(Path::new("idl/echo.idl"), out_dir));
        assert!(!is_generated(Path::new("/build/output/echo.idl"), out_dir));
        assert!(!is_generated(Path::new("/build/out/wide.idl"), None));
    }
}
