//! What the path of a control group shows: the unit of systemd, the container, the pod.
//!
//! Sources: systemd.unit(5); the cgroup drivers of runc (`docker-ID.scope`, `/docker/ID`), containerd
//! (`cri-containerd-ID.scope`), CRI-O (`crio-ID.scope`), podman (`libpod-ID.scope`); the kubelet's cgroup manager
//! (`kubepods…-podUID.slice`, `/kubepods/…/podUID`); LXC (`lxc.payload.NAME`), systemd-nspawn (`machine-NAME.scope`).

/// Digits of a container's id that are kept, as `docker ps` shows it.
const SHORT_ID_LEN: usize = 12;
const ID_LEN: usize = 64;
const UUID_LEN: usize = 36;
const STATIC_POD_LEN: usize = 32;
/// Hierarchies of cgroup v1 in which containers have groups of their own, most likely first.
const HIERARCHIES: [&str; 4] = ["name=systemd", "memory", "pids", "cpu"];

/// What a path shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    pub unit: Option<String>,
    pub container: Option<String>,
    pub pod_uid: Option<String>,
}

/// The path that says most, of a `/proc/PID/cgroup`.
pub fn path_of(text: &str) -> Option<&str> {
    let paths: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.splitn(3, ':').skip(1).collect::<Vec<_>>().try_into().ok())
        .map(|[controllers, path]: [&str; 2]| (controllers, path))
        .collect();
    let of = |wanted: &str| {
        let found = paths.iter().find(|(own, _)| own.split(',').any(|each| each == wanted));
        found.map(|(_, path)| *path).filter(|path| *path != "/")
    };
    of("").or_else(|| HIERARCHIES.iter().find_map(|wanted| of(wanted)))
}

/// What a path shows.
pub fn place_of(path: &str) -> Place {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let container = parts.iter().rev().find_map(|part| container_of(part));
    let unit = parts.iter().rev().find(|part| part.ends_with(".service"));
    Place {
        unit: unit.filter(|_| container.is_none()).map(|unit| (*unit).to_owned()),
        container,
        pod_uid: parts.iter().rev().find_map(|part| pod_of(part)),
    }
}

fn container_of(part: &str) -> Option<String> {
    if let Some(name) = part.strip_prefix("lxc.payload.").filter(|name| !name.is_empty()) {
        return Some(name.to_owned());
    }
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    if let Some(name) = scope.strip_prefix("machine-").filter(|_| scope.len() < part.len()) {
        return Some(name.replace("\\x2d", "-"));
    }
    // Of conmon, which watches over a container, the id stands in a group of its own.
    let is_watcher = scope.contains("conmon");
    let id = scope.rsplit(['-', ':']).next()?;
    let is_id = id.len() == ID_LEN && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_id && !is_watcher).then(|| id[..SHORT_ID_LEN].to_owned())
}

fn pod_of(part: &str) -> Option<String> {
    let slice = part.strip_suffix(".slice").unwrap_or(part);
    let from = slice.rfind("pod")? + 3;
    if !(part.starts_with("kubepods") || part.starts_with("pod")) {
        return None;
    }
    let uid = slice[from..].replace('_', "-");
    let is_uid = matches!(uid.len(), UUID_LEN | STATIC_POD_LEN)
        && uid.bytes().all(|digit| digit.is_ascii_hexdigit() || digit == b'-');
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a1b0c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8";
    const POD: &str = "7d1ab6f2-3c4d-4e5f-8a9b-0c1d2e3f4a5b";

    #[test]
    fn paths_show_unit_container_and_pod() {
        let pod_slice = format!("kubepods-burstable-pod{}.slice", POD.replace('-', "_"));
        let cases = [
            ("/system.slice/nginx.service".into(), Some("nginx.service"), None, None),
            (
                "/system.slice/system-postgresql.slice/postgresql@15-main.service".into(),
                Some("postgresql@15-main.service"),
                None,
                None,
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service".into(),
                Some("web.service"),
                None,
                None,
            ),
            ("/user.slice/user-0.slice/session-3.scope".into(), None, None, None),
            (
                format!("/system.slice/docker-{ID}.scope"),
                None,
                Some("3f2a1b0c4d5e"),
                None,
            ),
            (format!("/docker/{ID}"), None, Some("3f2a1b0c4d5e"), None),
            (
                format!("/docker/{ID}/system.slice/nginx.service"),
                None,
                Some("3f2a1b0c4d5e"),
                None,
            ),
            (
                format!("/kubepods.slice/kubepods-burstable.slice/{pod_slice}/cri-containerd-{ID}.scope"),
                None,
                Some("3f2a1b0c4d5e"),
                Some(POD),
            ),
            (
                format!("/kubepods/besteffort/pod{POD}/{ID}"),
                None,
                Some("3f2a1b0c4d5e"),
                Some(POD),
            ),
            (
                format!("/kubepods.slice/kubepods-pod0123456789abcdef0123456789abcdef.slice/crio-{ID}.scope"),
                None,
                Some("3f2a1b0c4d5e"),
                Some("0123456789abcdef0123456789abcdef"),
            ),
            (
                format!("/machine.slice/libpod-{ID}.scope/container"),
                None,
                Some("3f2a1b0c4d5e"),
                None,
            ),
            (format!("/machine.slice/libpod-conmon-{ID}.scope"), None, None, None),
            ("/lxc.payload.web/system.slice".into(), None, Some("web"), None),
            (
                "/machine.slice/machine-deb\\x2d12.scope".into(),
                None,
                Some("deb-12"),
                None,
            ),
            (
                format!("/system.slice/containerd.service/kubepods-x:cri-containerd:{ID}"),
                None,
                Some("3f2a1b0c4d5e"),
                None,
            ),
            ("/".into(), None, None, None),
            ("/pod/podium".into(), None, None, None),
        ];
        for (path, unit, container, pod_uid) in cases {
            let expected = Place {
                unit: unit.map(str::to_owned),
                container: container.map(str::to_owned),
                pod_uid: pod_uid.map(str::to_owned),
            };
            assert_eq!(place_of(&path), expected, "{path}");
        }
    }

    #[test]
    fn the_path_that_says_most_is_taken() {
        let cases = [
            ("0::/system.slice/a.service\n", Some("/system.slice/a.service")),
            ("9:name=systemd:/\n4:memory:/docker/x\n0::/\n", Some("/docker/x")),
            ("9:name=systemd:/b\n4:memory:/c\n0::/\n", Some("/b")),
            ("1:cpu,cpuacct:/d:e\n", Some("/d:e")),
            ("0::/\n", None),
            ("garbage", None),
        ];
        for (text, expected) in cases {
            assert_eq!(path_of(text), expected, "{text:?}");
        }
    }
}
