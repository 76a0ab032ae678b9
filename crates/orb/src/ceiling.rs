//! Priority ceilings: the highest priority that a peer may ask for (docs/decisions/0012).

use std::fmt;

use corelane_sched::Priority;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceiling {
    UpTo(Priority),
    /// No ceiling is configured, and the peer is on another machine.
    Unset,
}

impl Ceiling {
    pub(crate) const NONE: Ceiling = Ceiling::UpTo(Priority::MAX);

    pub(crate) fn for_connection(configured: Option<Priority>, is_local: impl FnOnce() -> bool) -> Self {
        match configured {
            Some(ceiling) => Ceiling::UpTo(ceiling),
            None if is_local() => Ceiling::NONE,
            None => Ceiling::Unset,
        }
    }

    /// Returns false if the ceiling forbids `priority`. [`Unset`](Self::Unset) allows every
    /// priority here, because the placement of the request applies the default priority as the
    /// ceiling.
    pub(crate) fn allows(self, priority: Priority) -> bool {
        match self {
            Ceiling::UpTo(ceiling) => priority <= ceiling,
            Ceiling::Unset => true,
        }
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ceiling::UpTo(ceiling) => ceiling.fmt(f),
            Ceiling::Unset => f.write_str("unset ceiling"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_peers_have_no_ceiling_unless_one_is_configured() {
        assert_eq!(Ceiling::for_connection(None, || true), Ceiling::UpTo(Priority::MAX));
        assert_eq!(Ceiling::for_connection(None, || false), Ceiling::Unset);
        let set = Priority::new(15);
        for is_local in [true, false] {
            assert_eq!(Ceiling::for_connection(set, || is_local), Ceiling::UpTo(set.unwrap()));
        }
    }
}
