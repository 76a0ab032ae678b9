//! JacORB's name server.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers;

/// A running name server of JacORB, which ends when the value is dropped.
#[derive(Debug)]
pub struct JacorbNames {
    child: Child,
    reference: String,
}

impl JacorbNames {
    /// Starts a name server without names, with its files in the folder `store`, and waits for its
    /// reference. `folder` has the built peers.
    ///
    /// # Panics
    ///
    /// If the server cannot be fetched or does not start.
    pub fn start(folder: &Path, store: &Path) -> Self {
        let _ = fs::remove_dir_all(store);
        fs::create_dir_all(store).unwrap();
        let file = store.join("names.ior");
        let command = peers::jacorb_name_server(folder, store, &file);
        let mut command = command.unwrap_or_else(|trouble| panic!("{trouble}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut names = JacorbNames { child, reference: String::new() };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !names.reference.ends_with('\n') {
            assert!(names.child.try_wait().unwrap().is_none(), "JacORB's name server ended");
            assert!(Instant::now() < deadline, "JacORB's name server writes no reference");
            thread::sleep(Duration::from_millis(50));
            names.reference = fs::read_to_string(&file).unwrap_or_default();
        }
        names
    }

    /// Returns the reference of the initial context.
    pub fn reference(&self) -> &str {
        self.reference.trim()
    }
}

impl Drop for JacorbNames {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
