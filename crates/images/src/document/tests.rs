//! Documents that are accepted as an index or a manifest, and documents that are refused.

use super::*;

const WHAT: &str = "the manifest";

fn descriptor(media_type: &str, platform: &str) -> String {
    let digest = Digest::of(b"");
    format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":2{platform}}}"#)
}

fn refused(json: &str, content_type: Option<&str>) -> String {
    let error = Document::parse(json.as_bytes(), content_type, WHAT);
    error
        .err()
        .map_or_else(|| panic!("taken: {json}"), |error| error.why)
}

#[test]
fn a_document_is_an_index_or_a_manifest_and_never_both() {
    let config = descriptor(CONFIGS[0], "");
    let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[]}}"#);
    let index = r#"{"schemaVersion":2,"manifests":[]}"#;
    let parse = |json: &str, content_type| Document::parse(json.as_bytes(), content_type, WHAT);
    for content_type in [
        None,
        Some("application/json"),
        Some("application/vnd.oci.image.manifest.v1+json; charset=x"),
    ] {
        let taken = parse(&manifest, content_type);
        assert!(
            matches!(taken, Ok(Document::Manifest(_))),
            "{content_type:?}"
        );
    }
    assert!(matches!(
        parse(index, Some(DOCKER_INDEX)),
        Ok(Document::Index(_))
    ));

    assert!(refused(&manifest, Some(OCI_INDEX)).contains("names no manifests"));
    assert!(refused(index, Some(OCI_MANIFEST)).contains("at once"));
    let both = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[],"manifests":[]}}"#);
    assert!(refused(&both, None).contains("at once"));
    let lying = manifest.replacen('{', &format!(r#"{{"mediaType":"{OCI_MANIFEST}","#), 1);
    assert!(refused(&lying, Some(DOCKER_INDEX)).contains("at once"));
    let other = manifest.replacen('{', r#"{"mediaType":"text/html","#, 1);
    assert!(refused(&other, None).contains("`text/html`"));
}

#[test]
fn old_damaged_and_endless_documents_are_refused() {
    let deep = format!(r#"{{"schemaVersion":2,"x":{}"#, "[".repeat(100_000));
    let negative = r#"{"schemaVersion":2,"config":{"digest":"","size":-1},"layers":[]}"#;
    let huge =
        r#"{"schemaVersion":2,"config":{"digest":"","size":99999999999999999999},"layers":[]}"#;
    let cases = [
        ("", "not the JSON"),
        ("<html>", "not the JSON"),
        ("{}", "`schemaVersion`"),
        (r#"{"schemaVersion":1,"fsLayers":[]}"#, "schema 1"),
        (r#"{"schemaVersion":2,"fsLayers":[]}"#, "schema 1"),
        (r#"{"schemaVersion":3}"#, "`schemaVersion`"),
        (r#"{"schemaVersion":2}"#, "no `config`"),
        (
            r#"{"schemaVersion":2,"schemaVersion":2}"#,
            "duplicate field",
        ),
        (negative, "not the JSON"),
        (huge, "not the JSON"),
        (deep.as_str(), "not the JSON"),
    ];
    for (json, why) in cases {
        let told = refused(json, None);
        assert!(told.contains(why), "{told}");
    }
    let signed = "application/vnd.docker.distribution.manifest.v1+prettyjws";
    assert!(refused(r#"{"schemaVersion":2}"#, Some(signed)).contains("schema 1"));
}

#[test]
fn a_platform_is_selected_or_what_there_is_is_told() {
    let entry = |os: &str, architecture: &str| {
        let platform = format!(r#","platform":{{"os":"{os}","architecture":"{architecture}"}}"#);
        descriptor(OCI_MANIFEST, &platform)
    };
    let index = |entries: &[String]| {
        let json = format!(
            r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
            entries.join(",")
        );
        match Document::parse(json.as_bytes(), None, WHAT).unwrap() {
            Document::Index(index) => index,
            Document::Manifest(_) => panic!("not an index"),
        }
    };
    let wanted = Platform {
        os: "linux".to_owned(),
        architecture: "amd64".to_owned(),
        variant: None,
    };
    let both = index(&[
        entry("linux", "arm64"),
        entry("linux", "amd64"),
        entry("unknown", "unknown"),
    ]);
    let chosen = both.select(&wanted).unwrap();
    assert_eq!(chosen.platform.as_ref().unwrap().architecture, "amd64");
    let other = index(&[entry("linux", "arm64"), entry("unknown", "unknown")]);
    assert_eq!(other.select(&wanted).unwrap_err(), "linux/arm64");
    let silent = index(&[descriptor(OCI_MANIFEST, "")]);
    assert!(silent.select(&wanted).is_ok());
    assert_eq!(
        index(&[]).select(&wanted).unwrap_err(),
        "none that it names"
    );
    let hostile = index(&[entry("\\u001b[31m", &"x".repeat(5_000))]);
    let told = hostile.select(&wanted).unwrap_err();
    assert!(told.len() < 400 && !told.contains('\u{1b}'), "{told}");
}

#[test]
fn only_container_images_are_images() {
    let parse = |config: &str| {
        let config = descriptor(config, "");
        let json = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[]}}"#);
        match Document::parse(json.as_bytes(), None, WHAT).unwrap() {
            Document::Manifest(manifest) => manifest.check(WHAT),
            Document::Index(_) => panic!("not a manifest"),
        }
    };
    assert!(parse(CONFIGS[0]).is_ok() && parse(CONFIGS[1]).is_ok());
    let chart = parse("application/vnd.cncf.helm.config.v1+json").unwrap_err();
    assert!(chart.why.contains("not a container image"), "{chart}");
}

#[test]
fn a_configuration_is_read_with_all_its_nulls() {
    let digest = Digest::of(b"");
    let json = format!(
        r#"{{"os":"linux","architecture":"amd64","config":{{"User":"1000:10","Env":["A=b=c","PATH=/bin","D"],
        "Entrypoint":["/run"],"Cmd":null,"Volumes":{{"/data":{{}}}},"WorkingDir":"/w","ExposedPorts":{{"80/tcp":{{}}}},
        "Labels":{{"a":"b"}},"StopSignal":"SIGINT","OnBuild":null}},"rootfs":{{"type":"layers","diff_ids":["{digest}"]}},"history":[]}}"#
    );
    let read = ImageDocument::parse(json.as_bytes(), WHAT).unwrap();
    assert_eq!(read.platform.to_string(), "linux/amd64");
    assert_eq!(read.diff_ids, [digest]);
    let config = read.config;
    assert_eq!(config.entrypoint, ["/run"]);
    assert!(config.command.is_empty());
    assert_eq!(config.env[0], ("A".to_owned(), "b=c".to_owned()));
    assert_eq!(config.env[2], ("D".to_owned(), String::new()));
    assert_eq!(
        (config.user.as_str(), config.working_dir.as_str()),
        ("1000:10", "/w")
    );
    assert_eq!(
        (config.volumes, config.exposed_ports),
        (vec!["/data".to_owned()], vec!["80/tcp".to_owned()])
    );
    assert_eq!(config.stop_signal.as_deref(), Some("SIGINT"));

    let nothing = ImageDocument::parse(br#"{"rootfs":{"diff_ids":null},"config":null}"#, WHAT);
    assert!(nothing.unwrap().diff_ids.is_empty());
    let nul = ImageDocument::parse(br#"{"rootfs":{},"config":{"Cmd":["a\u0000b"]}}"#, WHAT);
    assert!(nul.unwrap_err().why.contains("NUL"));
    assert!(ImageDocument::parse(br#"{"os":"linux"}"#, WHAT).is_err());
}
