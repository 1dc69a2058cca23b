//! nbval's markers: how a cell wants its outputs compared.

/// What nbval's markers say of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Markers {
    /// Whether its outputs are compared, if it says so.
    pub(crate) checks: Option<bool>,
    /// Whether it isn't run.
    pub(crate) is_skipped: bool,
    /// Whether it may raise.
    pub(crate) may_raise: bool,
}

impl Markers {
    /// Reads the comments and tags of a cell. Comments overrule tags.
    pub(crate) fn of(source: &str, tags: &[String]) -> Self {
        let mut markers = Self::default();
        for tag in tags.iter().filter(|tag| tag.starts_with("nbval-")) {
            markers.take(&tag.to_ascii_uppercase().replace('-', "_"));
        }
        for line in source.lines() {
            if let Some(comment) = line.trim().strip_prefix('#') {
                markers.take(comment.trim_start_matches('#').trim());
            }
        }
        markers
    }

    fn take(&mut self, name: &str) {
        match name {
            // The second is nbval's own earlier name.
            "NBVAL_IGNORE_OUTPUT" | "PYTEST_VALIDATE_IGNORE_OUTPUT" => self.checks = Some(false),
            "NBVAL_CHECK_OUTPUT" => self.checks = Some(true),
            "NBVAL_RAISES_EXCEPTION" => self.may_raise = true,
            "NBVAL_SKIP" => self.is_skipped = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_comments_or_tags() {
        let of = |source: &str, tags: &[&str]| {
            Markers::of(source, &tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of("x # NBVAL_SKIP", &[]), Markers::default());
        assert!(of("x\n  # NBVAL_SKIP ", &[]).is_skipped);
        assert!(of("x", &["nbval-skip"]).is_skipped);
        assert!(!of("x", &["NBVAL_SKIP"]).is_skipped);
        assert!(of("##NBVAL_RAISES_EXCEPTION", &[]).may_raise);
        assert_eq!(of("# NBVAL_CHECK_OUTPUT", &["nbval-ignore-output"]).checks, Some(true));
        assert_eq!(of("", &["nbval-ignore-output"]).checks, Some(false));
        assert_eq!(of("# PYTEST_VALIDATE_IGNORE_OUTPUT", &[]).checks, Some(false));
    }
}
