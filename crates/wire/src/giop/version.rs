//! Versions of GIOP, and what differs between them. A question about a version is a method here:
//! a further version adds its constant, and answers these questions.

/// A version of GIOP, or of an IIOP profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The major version, always 1 so far.
    pub major: u8,
    /// The minor version, 0 to 2 in supported messages.
    pub minor: u8,
}

/// The form of wide characters and strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WideForm {
    /// There is none: GIOP 1.0.
    Absent,
    /// Code units in the message's byte order, with a terminator: GIOP 1.1.
    Units,
    /// Octets with their number, a byte-order mark where needed, and no terminator: from GIOP 1.2 on.
    Octets,
}

impl Version {
    /// GIOP 1.0.
    pub const GIOP_1_0: Version = Version { major: 1, minor: 0 };
    /// GIOP 1.1.
    pub const GIOP_1_1: Version = Version { major: 1, minor: 1 };
    /// GIOP 1.2. (1.3 differs by the component model only, and no known ORB sends it.)
    pub const GIOP_1_2: Version = Version { major: 1, minor: 2 };
    /// The highest supported version, which messages without a peer's version have.
    pub const HIGHEST: Version = Version::GIOP_1_2;

    /// Returns true if messages of this version are supported.
    #[inline]
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.major == Version::HIGHEST.major && self.minor <= Version::HIGHEST.minor
    }

    /// Returns true if the request id comes first in the headers of requests and replies, bodies are
    /// aligned to 8, and a request has response flags and a target in one of three forms. Before
    /// GIOP 1.2 service contexts come first.
    #[inline]
    #[must_use]
    pub const fn has_giop_1_2_headers(self) -> bool {
        self.minor >= 2
    }

    /// Returns true if fragments name their request, and LocateRequests and their replies may be
    /// fragmented: from GIOP 1.2 on. A GIOP 1.1 fragment belongs to the message before it.
    #[inline]
    #[must_use]
    pub const fn has_fragment_ids(self) -> bool {
        self.minor >= 2
    }

    /// Returns true if a LocateReply can carry an exception: from GIOP 1.2 on.
    #[must_use]
    pub const fn has_locate_exceptions(self) -> bool {
        self.minor >= 2
    }

    /// Returns true if client and server agree on code sets, and profiles have components for it:
    /// from GIOP 1.1 on.
    #[inline]
    #[must_use]
    pub const fn has_code_sets(self) -> bool {
        self.minor >= 1
    }

    /// Returns the form of wide characters and strings.
    #[inline]
    pub(crate) const fn wide_form(self) -> WideForm {
        match self.minor {
            0 => WideForm::Absent,
            1 => WideForm::Units,
            _ => WideForm::Octets,
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_own_answers() {
        let answers = |version: Version| {
            let flags = [
                version.is_supported(),
                version.has_code_sets(),
                version.has_giop_1_2_headers(),
                version.has_fragment_ids(),
                version.has_locate_exceptions(),
            ];
            (flags, version.wide_form())
        };
        assert_eq!(answers(Version::GIOP_1_0), ([true, false, false, false, false], WideForm::Absent));
        assert_eq!(answers(Version::GIOP_1_1), ([true, true, false, false, false], WideForm::Units));
        assert_eq!(answers(Version::GIOP_1_2), ([true; 5], WideForm::Octets));
        for (major, minor) in [(1, 3), (2, 0), (0, 2)] {
            assert!(!Version { major, minor }.is_supported());
        }
    }
}
