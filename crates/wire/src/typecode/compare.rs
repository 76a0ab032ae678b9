use std::collections::HashSet;

use super::{TypeCodeKind, View};

pub(super) fn equal(a: View<'_>, b: View<'_>) -> bool {
    Comparison { exact: true, seen: HashSet::new() }.same(a, b)
}

pub(super) fn equivalent(a: View<'_>, b: View<'_>) -> bool {
    Comparison { exact: false, seen: HashSet::new() }.same(a, b)
}

struct Comparison {
    exact: bool,
    /// Types may be recursive, so a pair whose comparison has begun counts as equal.
    seen: HashSet<(usize, usize)>,
}

impl Comparison {
    fn same(&mut self, a: View<'_>, b: View<'_>) -> bool {
        let (a, b) = if self.exact { (a, b) } else { (a.unaliased(), b.unaliased()) };
        let kind = a.kind();
        if kind != b.kind() {
            return false;
        }
        if kind.is_basic() || a.key() == b.key() {
            return true;
        }
        if self.exact {
            if a.id() != b.id() || a.name() != b.name() {
                return false;
            }
        } else if kind.has_id() && !a.id().is_empty() && !b.id().is_empty() {
            return a.id() == b.id();
        }
        if (a.length(), a.scale(), a.member_count()) != (b.length(), b.scale(), b.member_count()) {
            return false;
        }
        if (a.default(), a.modifier()) != (b.default(), b.modifier()) {
            return false;
        }
        if !self.seen.insert((a.key(), b.key())) {
            return true;
        }
        let contents = match (a.content(), b.content()) {
            (Some(a), Some(b)) => self.same(a, b),
            (None, None) => true,
            _ => false,
        };
        contents && self.same_members(a, b)
    }

    fn same_members(&mut self, a: View<'_>, b: View<'_>) -> bool {
        let default = usize::try_from(a.default()).ok();
        let enumeration = a.kind() == TypeCodeKind::Enum;
        (0..).zip(a.members().zip(b.members())).all(|(index, (a, b))| {
            let names = !self.exact || a.name == b.name;
            // The label of a default arm has no meaning, so it is not compared.
            let labels = a.label == b.label || default == Some(index);
            names && labels && a.visibility == b.visibility && (enumeration || self.same(a.ty, b.ty))
        })
    }
}
