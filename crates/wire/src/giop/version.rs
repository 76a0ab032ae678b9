//! Versions of GIOP, and the differences between them.

/// A version of GIOP, or of an IIOP profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The major version, 1 in supported messages.
    pub major: u8,
    /// The minor version, 0 to 2 in supported messages.
    pub minor: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WideForm {
    /// GIOP 1.0 has no form of wide text.
    Absent,
    /// GIOP 1.1: code units in the message's byte order, with a terminator.
    Units,
    /// From GIOP 1.2 on: the number of octets, then the octets, with a byte-order mark if necessary
    /// and without a terminator.
    Octets,
}

impl Version {
    /// GIOP 1.0.
    pub const GIOP_1_0: Version = Version { major: 1, minor: 0 };
    /// GIOP 1.1.
    pub const GIOP_1_1: Version = Version { major: 1, minor: 1 };
    /// GIOP 1.2.
    pub const GIOP_1_2: Version = Version { major: 1, minor: 2 };
    /// The highest supported version.
    pub const HIGHEST: Version = Version::GIOP_1_2;

    /// Returns true if messages of this version are supported.
    #[inline]
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.major == Version::HIGHEST.major && self.minor <= Version::HIGHEST.minor
    }

    /// Returns true if requests and replies have the headers of GIOP 1.2. The request id comes
    /// first, a request has response flags, and its target has one of three forms.
    #[inline]
    #[must_use]
    pub const fn has_giop_1_2_headers(self) -> bool {
        self.minor >= 2
    }

    /// Returns true if fragments carry the id of their request: from GIOP 1.2 on.
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

    /// Returns true if client and server negotiate code sets: from GIOP 1.1 on.
    #[inline]
    #[must_use]
    pub const fn has_code_sets(self) -> bool {
        self.minor >= 1
    }

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
    fn methods_of_a_version_tell_its_differences() {
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
