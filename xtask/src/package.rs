//! `cargo xtask package`: builds what users install, and checks each package without a daemon.
//!
//! The results are in `target/package`. Nothing is published.

mod clean_root;
mod installs;
mod served;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;

use crate::{needs, process, workspace};
use served::{DEMO, demo_answers_a_hit};

/// Maximum size of the binary in bytes.
const BINARY_MAX: u64 = 25 << 20;

/// Maximum exposure of the service as `systemd-analyze security` rates it, times ten.
const EXPOSURE_MAX: &str = "--threshold=20";

/// Script for `sh` in a mount namespace of its own: root folder, user, command.
const READ_ONLY: &str = r#"
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
user="$1"; shift
exec chroot --userspec="$user" "$0" "$@"
"#;

/// Arguments of `cargo xtask package`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Packages to make instead of all.
    packages: Vec<Package>,
    /// Takes this static binary instead of building one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// One package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Package {
    /// Static binary.
    Binary,
    /// Manual pages and completions.
    Pages,
    /// Units of systemd.
    Systemd,
    /// Container image.
    Image,
    /// Compose file.
    Compose,
    /// Kustomize base.
    Kubernetes,
    /// Debian package.
    Deb,
    /// RPM package.
    Rpm,
    /// Crates for the registry.
    Crates,
    /// Workflow of releases.
    Workflow,
}

/// Folders and files that the packages share.
struct Site {
    /// Target of the binary.
    target: String,
    /// Sources: `packaging` in the repository.
    sources: PathBuf,
    /// Results.
    results: PathBuf,
    binary: PathBuf,
}

/// Makes and checks the packages.
pub(crate) fn run(options: Options) -> Result<()> {
    needs::ensure_for("package")?;
    let results = workspace::target_dir()?.join("package");
    fs::create_dir_all(&results)?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let built = match options.binary {
        Some(binary) => binary,
        None => build(&target)?,
    };
    let binary = results.join("forebay");
    fs::copy(&built, &binary).with_context(|| format!("copy {}", built.display()))?;
    let site = Site { target, sources: workspace::root().join("packaging"), results, binary };
    let all = Package::value_variants().to_vec();
    let wanted = if options.packages.is_empty() { all } else { options.packages };
    for package in wanted {
        let made = match package {
            Package::Binary => site.check_binary(),
            Package::Pages => site.make_pages(),
            Package::Systemd => site.check_systemd(),
            Package::Image => site.make_image(),
            Package::Compose => site.check_compose(),
            Package::Kubernetes => site.check_kubernetes(),
            Package::Deb => site.make_deb(),
            Package::Rpm => site.make_rpm(),
            Package::Crates => check_crates(),
            Package::Workflow => check_workflow(),
        };
        let summary = made.with_context(|| format!("package {package:?}"))?;
        println!("{package:?}: {summary}");
    }
    Ok(())
}

/// Builds the static binary in the profile of releases.
fn build(target: &str) -> Result<PathBuf> {
    // Toolchains that rustup does not manage have their own ways to install a target.
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", target]).current_dir(workspace::root());
    let added = succeed(&mut rustup);
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--locked", "--profile", "dist", "--package", "forebay-cli"]);
    cargo.args(["--target", target]).env(format!("CC_{}", target.replace('-', "_")), "musl-gcc");
    succeed(&mut cargo).with_context(|| match added {
        Ok(_) => "the static binary cannot be built".to_owned(),
        Err(error) => format!("the target {target} may be missing: {error:#}"),
    })?;
    Ok(workspace::target_dir()?.join(target).join("dist/forebay"))
}

/// Packs every crate of the registry, builds it from its package, and sends nothing.
fn check_crates() -> Result<String> {
    let mut cargo = workspace::cargo();
    // The tree of a developer has changes.
    cargo.args(["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty"]);
    let printed = succeed(&mut cargo)?;
    let packed = printed.lines().filter(|line| line.trim_start().starts_with("Packaged ")).count();
    ensure!(packed > 1, "cargo packed {packed} crates:\n{printed}");
    // The project has no public address yet; the registry requires the others.
    let lacks = |line: &&str| {
        line.starts_with("warning: manifest has no")
            && (line.contains("description") || line.contains("license"))
    };
    let complaint = printed.lines().find(lacks);
    ensure!(complaint.is_none(), "{}", complaint.unwrap_or_default());
    Ok(format!("{packed} crates"))
}

fn check_workflow() -> Result<String> {
    let actionlint = needs::find_tool("actionlint")?;
    let workflow = ".github/workflows/release.yml";
    succeed(Command::new(actionlint).arg(workflow).current_dir(workspace::root()))?;
    Ok(workflow.to_owned())
}

impl Site {
    fn check_binary(&self) -> Result<String> {
        let size = fs::metadata(&self.binary)?.len();
        ensure!(size <= BINARY_MAX, "{size} bytes are more than {BINARY_MAX}");
        // ldd fails for a static binary, and says so.
        let (_, linked) = process::run(Command::new("ldd").arg(&self.binary))?;
        let is_static = linked.contains("statically linked") || linked.contains("not a dynamic");
        ensure!(is_static, "the binary is not static: {linked}");
        let version = succeed(self.forebay().arg("--version"))?;
        ensure!(!version.contains("unknown"), "the commit is not known: {version}");
        for file in ["forebay.toml", "compose/forebay.toml", "kubernetes/forebay.toml"] {
            succeed(self.forebay().arg("check").arg(self.sources.join(file)))?;
        }
        Ok(format!("{} bytes, static, {}", size, version.trim()))
    }

    fn make_pages(&self) -> Result<String> {
        let [pages, completions] = ["man", "completions"].map(|name| self.results.join(name));
        fs::create_dir_all(&pages)?;
        fs::create_dir_all(&completions)?;
        succeed(self.forebay().arg("manual").arg(&pages))?;
        for (shell, file) in [("bash", "forebay"), ("zsh", "_forebay"), ("fish", "forebay.fish")] {
            let script = succeed(self.forebay().args(["completions", shell]))?;
            fs::write(completions.join(file), script)?;
        }
        succeed(Command::new("bash").arg("-n").arg(completions.join("forebay")))?;
        let pages = fs::read_dir(pages)?.count();
        ensure!(pages > 1, "no manual pages");
        Ok(format!("{pages} manual pages, completions of 3 shells"))
    }

    fn check_systemd(&self) -> Result<String> {
        let folder = tempfile::tempdir()?;
        for unit in ["forebay.service", "forebay.socket"] {
            let text = fs::read_to_string(self.sources.join("systemd").join(unit))?;
            let text = text.replace("/usr/bin/forebay", &self.binary.display().to_string());
            fs::write(folder.path().join(unit), text)?;
        }
        let [service, socket] =
            ["forebay.service", "forebay.socket"].map(|n| folder.path().join(n));
        let verify = ["verify", "--man=no"];
        let printed = succeed(analyze().args(verify).args([&service, &socket]))?;
        let about_ours = printed.lines().find(|line| line.contains("forebay."));
        ensure!(about_ours.is_none(), "{printed}");
        let security = ["security", "--offline=true", "--no-pager", EXPOSURE_MAX];
        let printed = succeed(analyze().args(security).arg(&service))?;
        Ok(printed.lines().last().unwrap_or_default().trim().to_owned())
    }

    fn make_image(&self) -> Result<String> {
        let context = tempfile::tempdir()?;
        fs::copy(&self.binary, context.path().join("forebay"))?;
        let file = self.sources.join("container/Containerfile");
        succeed(Command::new(needs::find_tool("hadolint")?).arg(&file))?;
        succeed(
            self.buildah()
                .args(["bud", "--isolation", "chroot", "--format", "docker"])
                .args(["--tag", "forebay:latest", "--file"])
                .arg(&file)
                .arg(context.path()),
        )?;
        let container = succeed(self.buildah().args(["from", "--pull-never", "forebay:latest"]))?;
        let container = container.trim();
        let in_image = |arguments: &[&str]| {
            let run = ["run", "--isolation", "chroot", container, "--", "/forebay"];
            succeed(self.buildah().args(run).args(arguments))
        };
        let version = in_image(&["--version"])?;
        let hit = self.serves_read_only(container);
        let removed = succeed(self.buildah().args(["rm", container]));
        let hit = hit?;
        let archive = self.results.join("forebay-image.tar");
        let _ = fs::remove_file(&archive);
        let target = format!("docker-archive:{}:forebay:latest", archive.display());
        succeed(self.buildah().args(["push", "forebay:latest", &target]))?;
        removed?;
        Ok(format!("{} bytes, {}, {hit}", fs::metadata(archive)?.len(), version.trim()))
    }

    /// Runs the demo of a container as its user, on its root file system mounted read-only.
    fn serves_read_only(&self, container: &str) -> Result<String> {
        let user = succeed(self.buildah().args([
            "inspect",
            "--format",
            "{{.OCIv1.Config.User}}",
            container,
        ]))?;
        let root = succeed(self.buildah().args(["mount", container]))?;
        let mut demo = Command::new("unshare");
        demo.args(["--mount", "sh", "-ec", READ_ONLY, root.trim(), user.trim(), "/forebay"]);
        let hit = demo_answers_a_hit(demo.args(DEMO), &self.results.join("demo.log"));
        succeed(self.buildah().args(["umount", container]))?;
        hit
    }

    fn check_compose(&self) -> Result<String> {
        let folder = self.sources.join("compose");
        succeed(Command::new("docker-compose").args(["config", "--quiet"]).current_dir(&folder))?;
        // The names of the caches exist only inside of the network of the containers.
        let printed = succeed(
            Command::new(needs::find("haproxy")?)
                .args(["-c", "-f", "haproxy.cfg"])
                .current_dir(folder),
        )?;
        let promtool = needs::find_tool("promtool")?;
        let promtool = |arguments: &[&str]| {
            let folder = workspace::root().join("deploy");
            succeed(Command::new(&promtool).args(arguments).current_dir(folder))
        };
        // The file of the token exists only in the container.
        promtool(&["check", "config", "--syntax-only", "prometheus.yml"])?;
        promtool(&["check", "rules", "forebay.rules.yml"])?;
        promtool(&["test", "rules", "forebay.rules.test.yml"])?;
        Ok(printed.lines().last().unwrap_or_default().trim().to_owned())
    }

    fn check_kubernetes(&self) -> Result<String> {
        let folder = self.sources.join("kubernetes");
        let printed = succeed(Command::new("kubectl").arg("kustomize").arg(folder))?;
        let manifests = self.results.join("kubernetes.yaml");
        fs::write(&manifests, &printed)?;
        let validate = needs::find_tool("kubernetes-validate")?;
        succeed(Command::new(validate).arg("--strict").arg(&manifests))?;
        let kinds: Vec<&str> =
            printed.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
        for kind in ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"] {
            ensure!(kinds.contains(&kind), "no {kind} in {kinds:?}");
        }
        Ok(kinds.join(", "))
    }

    fn forebay(&self) -> Command {
        Command::new(&self.binary)
    }

    /// buildah with a storage of its own.
    fn buildah(&self) -> Command {
        let mut buildah = Command::new("buildah");
        let storage = |name: &str| self.results.join("storage").join(name);
        buildah.args(["--storage-driver", "vfs", "--root"]).arg(storage("root"));
        buildah.arg("--runroot").arg(storage("run"));
        buildah
    }
}

fn analyze() -> Command {
    Command::new("systemd-analyze")
}

/// Runs a command and returns what it prints. A status other than 0 is an error.
fn succeed(command: &mut Command) -> Result<String> {
    let (status, printed) = process::run(command)?;
    if !status.success() {
        bail!("{command:?} failed:\n{printed}");
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_name_the_files_that_the_packages_install() {
        let unit = workspace::root().join("packaging/systemd/forebay.service");
        let text = fs::read_to_string(unit).unwrap();
        assert!(
            text.contains("ExecStart=/usr/bin/forebay serve --config /etc/forebay/forebay.toml")
        );
    }
}
