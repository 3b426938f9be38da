//! Which interfaces a capture is of: names that the operator gave, and patterns, whose interfaces come and go.

/// Stands for every interface.
pub const ANY: &str = "any";

/// What the operator gave.
#[derive(Debug, Clone)]
pub struct WantedInterfaces {
    given: Vec<String>,
}

impl WantedInterfaces {
    /// Of names and patterns: `any`, or with `*` for any letters and `?` for one.
    pub fn new(given: &[String]) -> Self {
        WantedInterfaces { given: given.to_vec() }
    }

    /// Those given by name.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.given.iter().filter(|given| !is_pattern(given))
    }

    /// The patterns.
    pub fn patterns(&self) -> impl Iterator<Item = &String> {
        self.given.iter().filter(|given| is_pattern(given))
    }

    /// Whether interfaces that come later are captured, too.
    pub fn has_patterns(&self) -> bool {
        self.patterns().next().is_some()
    }

    /// Whether an interface is given by its name.
    pub fn is_named(&self, interface: &str) -> bool {
        self.names().any(|name| name == interface)
    }

    /// Of those that exist, the ones that are wanted: the named first.
    pub fn among(&self, existing: &[String]) -> Vec<String> {
        let named = self.names().filter(|name| existing.contains(name));
        let fitting = existing
            .iter()
            .filter(|name| !self.is_named(name) && self.patterns().any(|pattern| fits(pattern, name)));
        named.chain(fitting).cloned().collect()
    }
}

fn is_pattern(given: &str) -> bool {
    given == ANY || given.contains(['*', '?'])
}

/// Whether a name is as a pattern says.
fn fits(pattern: &str, name: &str) -> bool {
    pattern == ANY || fits_bytes(pattern.as_bytes(), name.as_bytes())
}

fn fits_bytes(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => fits_bytes(rest, name),
        (Some((b'*', rest)), Some((_, later))) => fits_bytes(rest, name) || fits_bytes(pattern, later),
        (Some((b'?', rest)), Some((_, later))) => fits_bytes(rest, later),
        (Some((wanted, rest)), Some((letter, later))) => wanted == letter && fits_bytes(rest, later),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_among(given: &[&str], existing: &[&str]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        WantedInterfaces::new(&owned(given)).among(&owned(existing))
    }

    #[test]
    fn names_and_patterns_are_found_among_what_exists() {
        let existing = ["lo", "eth0", "eth1", "veth12a", "docker0"];
        let cases: [(&[&str], &[&str]); 7] = [
            (&["any"], &["lo", "eth0", "eth1", "veth12a", "docker0"]),
            (&["docker0", "eth*"], &["docker0", "eth0", "eth1"]),
            (&["eth*", "eth1"], &["eth1", "eth0"]),
            (&["eth?"], &["eth0", "eth1"]),
            (&["*0"], &["eth0", "docker0"]),
            (&["v*1*a"], &["veth12a"]),
            (&["wlan*", "eth"], &[]),
        ];
        for (given, expected) in cases {
            assert_eq!(names_among(given, &existing), expected, "{given:?}");
        }
    }

    #[test]
    fn only_patterns_follow() {
        let of = |given: &str| WantedInterfaces::new(&[given.to_owned()]).has_patterns();
        assert_eq!(["eth0", "any", "veth*", "anyone"].map(of), [false, true, true, false]);
    }
}
