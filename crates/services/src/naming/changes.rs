//! A bounded log of the latest changes of bindings, for clients that watch a server. A client that
//! falls behind learns that changes are lost.

use std::collections::VecDeque;

use super::state::{BindingTarget, Change};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogLimits {
    pub(super) max_changes: usize,
    /// Maximum size of the log in bytes. A single change may be larger.
    pub(super) max_size: usize,
}

pub(super) struct ChangeLog {
    limits: LogLimits,
    kept: VecDeque<Change>,
    size: usize,
    next: u64,
    is_watched: bool,
}

impl ChangeLog {
    pub(super) fn new(limits: LogLimits) -> Self {
        ChangeLog { limits, kept: VecDeque::new(), size: 0, next: 0, is_watched: false }
    }

    /// Makes the log keep changes from now on, unless it does already. Returns the number of the
    /// next change.
    pub(super) fn watch(&mut self) -> u64 {
        self.is_watched = true;
        self.next
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn push(&mut self, changes: &[Change]) {
        for change in changes.iter().filter(|change| is_of_binding(change)) {
            self.next += 1;
            if !self.is_watched {
                continue;
            }
            self.size += size_of(change);
            self.kept.push_back(change.clone());
            while self.kept.len() > self.limits.max_changes || (self.size > self.limits.max_size && self.kept.len() > 1)
            {
                if let Some(oldest) = self.kept.pop_front() {
                    self.size -= size_of(&oldest);
                }
            }
        }
    }

    pub(super) fn lose(&mut self) {
        self.kept.clear();
        self.size = 0;
        self.next += 1;
    }

    /// Returns the changes from number `start` on, within `limits`, and the number after the last
    /// of them. Returns `None` if the log no longer has all changes from `start` on, or has not
    /// reached `start`.
    pub(super) fn after(&self, start: u64, limits: LogLimits) -> Option<(Vec<Change>, u64)> {
        let first_kept = self.next - self.kept.len() as u64;
        let skipped = usize::try_from(start.checked_sub(first_kept)?).ok()?;
        if start > self.next {
            return None;
        }
        let mut size = 0_usize;
        let changes: Vec<Change> = self
            .kept
            .iter()
            .skip(skipped)
            .take(limits.max_changes)
            .take_while(|change| {
                let is_first = size == 0;
                size = size.saturating_add(size_of(change));
                is_first || size <= limits.max_size
            })
            .cloned()
            .collect();
        let end = start + changes.len() as u64;
        Some((changes, end))
    }
}

fn is_of_binding(change: &Change) -> bool {
    matches!(change, Change::PutBinding { .. } | Change::RemoveBinding { .. })
}

/// Returns the size of a change in bytes, at least 1.
fn size_of(change: &Change) -> usize {
    let (name, target) = match change {
        Change::PutBinding { name, target, .. } => (Some(name), Some(target)),
        Change::RemoveBinding { name, .. } => (Some(name), None),
        _ => (None, None),
    };
    let reference = match target {
        Some(BindingTarget::Object(reference) | BindingTarget::ForeignContext(reference)) => reference.len(),
        Some(BindingTarget::Context(_)) | None => 0,
    };
    1 + name.map_or(0, |name| name.id.len() + name.kind.len()) + reference
}

#[cfg(test)]
mod tests {
    use super::super::cos_naming::NameComponent;
    use super::super::state::ContextId;
    use super::*;

    const ALL: LogLimits = LogLimits { max_changes: 100, max_size: 1_000 };

    fn unbound(id: &str) -> Change {
        let name = NameComponent { id: id.to_owned(), kind: String::new() };
        Change::RemoveBinding { context: ContextId::ROOT, name }
    }

    fn ids(changes: &[Change]) -> Vec<&str> {
        let id = |change: &'_ Change| match change {
            Change::RemoveBinding { name, .. } => name.id.len(),
            _ => 0,
        };
        changes.iter().map(|change| &"xxxxxxxxxxxxxxxxxxxx"[..id(change)]).collect()
    }

    #[test]
    fn changes_come_once_and_in_order() {
        let mut log = ChangeLog::new(ALL);
        log.push(&[unbound("before")]);
        let start = log.watch();
        assert_eq!((start, log.after(start, ALL)), (1, Some((Vec::new(), 1))));
        assert_eq!(log.after(0, ALL), None, "the log must keep no change before the first client asks");
        log.push(&[unbound("x"), Change::NextContext(7), unbound("xx")]);
        let (changes, end) = log.after(start, ALL).unwrap();
        assert_eq!((ids(&changes), end), (vec!["x", "xx"], 3));
        let (changes, end) = log.after(start, LogLimits { max_changes: 1, ..ALL }).unwrap();
        assert_eq!((ids(&changes), end), (vec!["x"], 2));
        let (changes, _) = log.after(end, LogLimits { max_size: 1, ..ALL }).unwrap();
        assert_eq!(ids(&changes), ["xx"], "an answer must have one change even if the change exceeds the size");
        assert_eq!(log.after(4, ALL), None, "the log must refuse a number that it has not reached");
    }

    #[test]
    fn client_that_falls_behind_learns_that_changes_are_lost() {
        for limits in [LogLimits { max_changes: 2, ..ALL }, LogLimits { max_size: 8, ..ALL }] {
            let mut log = ChangeLog::new(limits);
            let start = log.watch();
            log.push(&[unbound("xxx"), unbound("xxx"), unbound("xxx")]);
            assert_eq!((log.kept.len(), log.after(start, ALL)), (2, None));
            assert_eq!(log.after(start + 1, ALL).unwrap().1, 3);
        }
        let mut log = ChangeLog::new(LogLimits { max_size: 1, ..ALL });
        let start = log.watch();
        log.push(&[unbound("xxxxx")]);
        assert_eq!(log.after(start, ALL).unwrap().1, 1);
        log.lose();
        assert_eq!((log.after(1, ALL), log.next()), (None, 2));
        assert_eq!(log.after(2, ALL), Some((Vec::new(), 2)));
    }
}
