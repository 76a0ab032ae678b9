//! Interfaces of 1 to 1,000 operations, made by the build script.

use std::sync::Arc;

use corelane::Servant;

use generated::wide::{Wide1, Wide10, Wide100, Wide1000};

/// Numbers of operations; build.rs has the same.
pub(crate) const WIDTHS: [usize; 4] = [1, 10, 100, 1000];

mod generated {
    #![allow(clippy::all, clippy::too_many_lines, missing_docs, unreachable_pub)]
    corelane::include_idl!("wide");
}

/// Does nothing, by any name.
struct Blank;

include!(concat!(env!("OUT_DIR"), "/wide_servants.rs"));

/// A servant with so many operations, `op_000` and on, if there is such an interface.
pub(crate) fn servant(width: usize) -> Option<Servant> {
    let blank = Arc::new(Blank);
    match width {
        1 => Some(Wide1::servant_of(blank)),
        10 => Some(Wide10::servant_of(blank)),
        100 => Some(Wide100::servant_of(blank)),
        1000 => Some(Wide1000::servant_of(blank)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_has_its_interface() {
        for width in WIDTHS {
            let id = format!("IDL:corelane/Wide/Wide{width}:1.0");
            assert_eq!(servant(width).unwrap().repository_id(), id);
        }
        assert!(servant(2).is_none());
    }
}
