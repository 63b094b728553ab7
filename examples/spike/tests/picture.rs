//! Runs the program as a user does.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Command},
};

/// Draws into a folder of its own, and gives both pictures.
fn draw(name: &str) -> io::Result<[String; 2]> {
    let out = env::temp_dir().join(format!("spike-{name}-{}", process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_spike")).arg("--out").arg(&out).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pictures = pictures(&out);
    fs::remove_dir_all(&out)?;
    pictures
}

fn pictures(folder: &Path) -> io::Result<[String; 2]> {
    let read = |name| fs::read_to_string(folder.join(format!("spike-{name}.svg")));
    Ok([read("light")?, read("dark")?])
}

#[test]
fn each_run_draws_the_same_picture_to_the_byte() -> io::Result<()> {
    let [light, dark] = draw("first")?;
    assert!(light.starts_with("<svg") && dark.starts_with("<svg"));
    assert!(light != dark);
    assert!([light, dark] == draw("second")?);
    Ok(())
}

#[test]
fn the_pictures_in_the_repository_are_the_ones_that_are_drawn() -> io::Result<()> {
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    assert!(draw("kept")? == pictures(&kept)?, "run `cargo run --release -p spike`, look at the pictures, commit them");
    Ok(())
}
