//! The paths of control groups by their numbers, of which sock_diag has one for each socket.
//!
//! On a 64-bit kernel a group's number is its folder's inode (kernfs).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two walks for a number that is not known.
const WALK_INTERVAL: Duration = Duration::from_secs(10);
/// Groups, at most.
const MOST_GROUPS: usize = 16_384;

/// The unified hierarchy.
pub struct CgroupTree {
    root: Option<PathBuf>,
    paths: HashMap<u64, String>,
    walked: Option<Instant>,
}

impl CgroupTree {
    /// Arguments: `mounts`, the text of `/proc/self/mountinfo`.
    pub fn new(mounts: &str) -> Self {
        CgroupTree {
            root: mount_point(mounts),
            paths: HashMap::new(),
            walked: None,
        }
    }

    /// The path of a group, as `/proc/PID/cgroup` has it.
    pub fn path(&mut self, id: u64, now: Instant) -> Option<&str> {
        let is_old = self
            .walked
            .is_none_or(|walked| now.duration_since(walked) >= WALK_INTERVAL);
        if !self.paths.contains_key(&id) && is_old {
            self.walk();
            self.walked = Some(now);
        }
        self.paths.get(&id).map(String::as_str)
    }

    fn walk(&mut self) {
        self.paths.clear();
        let Some(root) = &self.root else {
            return;
        };
        if let Ok(own) = fs::metadata(root) {
            self.paths.insert(own.ino(), "/".to_owned());
        }
        let mut open = vec![(root.clone(), String::new())];
        while let Some((folder, path)) = open.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if self.paths.len() >= MOST_GROUPS || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let below = format!("{path}/{}", entry.file_name().to_string_lossy());
                self.paths.insert(entry.ino(), below.clone());
                open.push((entry.path(), below));
            }
        }
    }
}

/// Where the unified hierarchy is mounted.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(|path| Path::new(path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found() {
        let mounts =
            "30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n41 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 x rw\n";
        assert_eq!(mount_point(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point(""), None);
    }

    #[test]
    fn numbers_are_those_of_folders() {
        let root = std::env::temp_dir().join(format!("cgroup-tree-{}", std::process::id()));
        fs::create_dir_all(root.join("system.slice/a.service")).expect("a folder");
        let mounts = format!("1 1 0:1 / {} rw - cgroup2 x rw", root.display());
        let mut tree = CgroupTree::new(&mounts);
        let inode = fs::metadata(root.join("system.slice/a.service"))
            .expect("made above")
            .ino();
        let now = Instant::now();
        assert_eq!(tree.path(inode, now), Some("/system.slice/a.service"));
        assert_eq!(tree.path(u64::MAX, now), None);
        fs::remove_dir_all(root).expect("made above");
    }
}
