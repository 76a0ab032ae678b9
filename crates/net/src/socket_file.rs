//! The file of a Unix listener. Before a listener binds a path, the module removes the file that a
//! dead process left there. A dropped listener removes its file.
//!
//! Invariant: the module removes no other file, and no file of a socket on which a process listens.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::process;
use corelane_sys::socket::{self, Address, SocketOptions};

/// Maximum time of the connection attempt that checks whether a process listens. The attempt waits
/// while the listener's queue is full.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file, which show whether a different file is at the path.
    identity: (u64, u64),
    /// The fork generation of the owner. In a forked child, the listener and its file belong to the
    /// parent.
    forks: u64,
}

impl SocketFile {
    pub(crate) fn for_path(path: &Path) -> io::Result<Self> {
        let identity = identity(&fs::symlink_metadata(path)?);
        Ok(SocketFile { path: path.to_owned(), identity, forks: process::fork_generation() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = || fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity);
        if process::fork_generation() == self.forks && is_own() {
            // If the removal fails, the next listener removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Removes the socket file that a dead process left at `path`. A file that is not a socket is not
/// removed, and `bind` then refuses the path.
///
/// # Errors
/// `AddrInUse` if a process listens at `path` or is about to; any error of the file system.
pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
    if !is_socket(path) {
        return Ok(());
    }
    check_dead(path, path)?;
    // Between the check and the removal, another process may put its own file at `path`. So the
    // file is first moved to a temporary name, and checked again.
    let aside = temporary_path(path);
    match fs::rename(path, &aside) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let dead = if is_socket(&aside) { check_dead(&aside, path) } else { Err(in_use(path)) };
    // A hard link never replaces another file, because the call fails if the path exists.
    let back = if dead.is_err() { fs::hard_link(&aside, path) } else { Ok(()) };
    if back.is_ok() {
        fs::remove_file(&aside)?;
    }
    dead.and(back)
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn check_dead(file: &Path, path: &Path) -> io::Result<()> {
    let until = Monotonic::now() + PROBE_TIMEOUT;
    match socket::connect(&Address::Unix(file.to_owned()), &SocketOptions::default(), Some(until)) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !is_bound(path) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(in_use(path)),
    }
}

/// Returns true if a process has bound a socket to `path`. The process may not listen yet.
/// Connections to the socket are then refused, as after the death of a process.
fn is_bound(path: &Path) -> bool {
    // Without /proc, the connection attempt alone decides.
    let sockets = fs::read("/proc/net/unix").unwrap_or_default();
    let wanted = path.as_os_str().as_bytes();
    sockets
        .split(|&octet| octet == b'\n')
        .any(|line| line.strip_suffix(wanted).is_some_and(|head| head.ends_with(b" ")))
}

fn in_use(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, format!("{} is in use", path.display()))
}

fn temporary_path(path: &Path) -> PathBuf {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned().into_vec();
    // The temporary name replaces the file name, so that the path seldom exceeds the maximum length
    // of an address.
    let folder = path.as_os_str().len() - path.file_name().map_or(0, |name| name.len());
    name.truncate(folder);
    name.extend(format!(".{:x}.{call:x}", process::id()).into_bytes());
    PathBuf::from(std::ffi::OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;
    use crate::{Endpoint, Transport, UnixTransport};

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("corelane-{test}-{}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn refused(path: &Path) {
        assert_eq!(UnixTransport.listen(&Endpoint::unix(path)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn forked_child_leaves_the_file_to_its_parent() {
        let folder = folder("forked");
        let path = folder.join("socket");
        let mut listener = Some(UnixTransport.listen(&Endpoint::unix(&path)).unwrap());
        let dropped = process::run_in_child(|| {
            drop(listener.take());
            true
        });
        assert!(dropped.unwrap());
        UnixStream::connect(&path).unwrap();
        drop(listener);
        assert!(!path.exists());
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn only_a_dead_listeners_file_is_removed() {
        let folder = folder("stale");
        let path = folder.join("socket");
        let living = UnixListener::bind(&path).unwrap();
        refused(&path);
        UnixStream::connect(&path).unwrap();
        drop(living);
        drop(UnixTransport.listen(&Endpoint::unix(&path)).unwrap());

        let datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(is_bound(&path));
        refused(&path);
        assert!(path.exists());
        drop(datagrams);
        assert!(!is_bound(&path));
        fs::remove_file(&path).unwrap();

        fs::write(&path, "mine").unwrap();
        refused(&path);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_file(&path).unwrap();
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn listener_with_a_full_backlog_is_not_waited_for() {
        let folder = folder("full");
        let path = folder.join("socket");
        let living = socket::listen(&Address::Unix(path.clone()), &SocketOptions::default(), 0).unwrap();
        let soon = || Some(Monotonic::now() + Duration::from_millis(1));
        let fill = || socket::connect(&Address::Unix(path.clone()), &SocketOptions::default(), soon());
        let waiting: Vec<_> = std::iter::from_fn(|| fill().ok()).collect();
        assert!(!waiting.is_empty());
        refused(&path);
        assert!(path.exists());
        drop(living);
        drop(UnixTransport.listen(&Endpoint::unix(&path)).unwrap());
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn listener_leaves_the_file_that_replaced_its_own() {
        let folder = folder("replaced");
        let path = folder.join("socket");
        let first = UnixTransport.listen(&Endpoint::unix(&path)).unwrap();
        fs::remove_file(&path).unwrap();
        let second = UnixTransport.listen(&Endpoint::unix(&path)).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        fs::remove_dir(&folder).unwrap();
    }
}
