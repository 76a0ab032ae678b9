//! Reading files from the file system.

use crate::lex::FileSource;
use crate::limits::CompilerLimits;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A [`FileSource`] that reads files from the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl FileSource for DiskFiles {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        if path.is_file() { read_bounded(path).ok() } else { None }
    }

    fn identity(&self, path: &Path) -> PathBuf {
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }
}

/// Reads a file, up to one byte more than the default of [`CompilerLimits::max_file_size`], because
/// devices may be endless.
pub(crate) fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let most = u64::try_from(CompilerLimits::default().max_file_size).unwrap_or(u64::MAX).saturating_add(1);
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(most).read_to_end(&mut content)?;
    Ok(content)
}
