//! The release of the running kernel.

use std::fs;
use std::sync::OnceLock;

/// Returns the release as the kernel writes it, for example "6.18.44". `None` if /proc cannot be
/// read.
pub(crate) fn text() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.trim().to_owned())
}

/// Returns the first two numbers of a release.
pub(crate) fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns true if the kernel is known to have this release or a later one.
pub fn is_at_least(major: u32, minor: u32) -> bool {
    static RELEASE: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    RELEASE.get_or_init(|| numbers(&text()?)).is_some_and(|release| release >= (major, minor))
}
