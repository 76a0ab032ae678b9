//! For build scripts: [`Builder`].

use crate::compile::{Compilation, Options};
use crate::lex::Files;
use crate::limits::Limits;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Compiles IDL files in a build script and writes the Rust code to `OUT_DIR`.
///
/// ```no_run
/// // In the `main` of build.rs:
/// corelane_idl::Builder::new().include("idl").compile("idl/echo.idl");
/// ```
///
/// The program then has the code with `corelane::include_idl!("echo")`.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    options: Options,
    output: Option<PathBuf>,
}

/// Files of the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        if path.is_file() { read_bounded(path).ok() } else { None }
    }

    fn identity(&self, path: &Path) -> PathBuf {
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }
}

impl Builder {
    /// A builder without search folders and macros.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Searches included files in a folder, after those named before.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.include.push(folder.into());
        self
    }

    /// Defines a macro.
    #[must_use]
    pub fn define(mut self, name: &str, value: &str) -> Self {
        self.options.defines.push(format!("{name}={value}"));
        self
    }

    /// Accepts what IDL 4 allows and CORBA 3 forbids: empty structures, octets as discriminators of unions.
    #[must_use]
    pub fn idl_4(mut self) -> Self {
        self.options.idl_4 = true;
        self
    }

    /// Writes to this folder instead of `OUT_DIR`.
    #[must_use]
    pub fn output(mut self, folder: impl Into<PathBuf>) -> Self {
        self.output = Some(folder.into());
        self
    }

    /// Compiles a file: `idl/echo.idl` becomes `echo.rs`, which is left alone when it would not change. Tells
    /// cargo to run the script again when a file that was read changes. Can be called for several files.
    ///
    /// Where the file is refused, this shows what is wrong and ends the build script with exit status 1.
    pub fn compile(&self, file: impl AsRef<Path>) -> &Self {
        if let Err(message) = self.try_compile(file.as_ref()) {
            eprint!("{message}");
            std::process::exit(1);
        }
        self
    }

    /// Like [`compile`](Self::compile), for callers that show the message themselves.
    ///
    /// # Errors
    ///
    /// What is wrong, for a person, over several lines: the file cannot be read, is refused, the output
    /// cannot be written, or would take the place of what another file of the same name became in this thread.
    pub fn try_compile(&self, file: &Path) -> Result<PathBuf, String> {
        let mut compilation = Compilation::of_file(file, &self.options)
            .map_err(|error| format!("error: cannot read `{}`: {error}\n", file.display()))?;
        for path in compilation.files_read() {
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
        let target = folder.join(file.file_stem().unwrap_or_default()).with_extension("rs");
        claim(file, &target)?;
        write_if_changed(&target, &rust)
            .map_err(|error| format!("error: cannot write `{}`: {error}\n", target.display()))?;
        Ok(target)
    }
}

thread_local! {
    /// What was written, and from which file: all builders of a build script write to one `OUT_DIR`.
    static WRITTEN: RefCell<HashMap<PathBuf, PathBuf>> = RefCell::new(HashMap::new());
}

/// Refuses to write over what this build script made of another file.
fn claim(file: &Path, target: &Path) -> Result<(), String> {
    let source = DiskFiles.identity(file);
    let first = WRITTEN.with_borrow_mut(|written| written.entry(target.to_owned()).or_insert(source.clone()).clone());
    if first == source {
        return Ok(());
    }
    let (first, file) = (first.display(), file.display());
    Err(format!("error: `{first}` and `{file}` would both become `{}`\n", target.display()))
}

/// The content of a file, or one octet more of it than the compiler accepts: devices may have no end.
pub(crate) fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let most = u64::try_from(Limits::default().file_size).unwrap_or(u64::MAX).saturating_add(1);
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(most).read_to_end(&mut content)?;
    Ok(content)
}

/// What [`write_if_changed`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The file is new or has another content now.
    Changed,
    /// The file was left alone.
    Same,
}

/// Writes a file unless it has this content already: what did not change is not compiled again.
pub(crate) fn write_if_changed(path: &Path, text: &str) -> std::io::Result<Written> {
    if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(Written::Same);
    }
    std::fs::write(path, text)?;
    Ok(Written::Changed)
}
