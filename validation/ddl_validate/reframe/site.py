"""An example of a site for ReFrame: copy it, and change names, hosts, module and the scheduler's options."""

site_configuration = {
    "systems": [
        {
            "name": "mycluster",
            "descr": "a cluster with Slurm",
            "hostnames": ["login[0-9]+"],
            "partitions": [
                {
                    "name": "compute",
                    "descr": "the nodes that train",
                    "scheduler": "slurm",
                    "launcher": "local",
                    "access": ["--partition=compute"],
                    "environs": ["wmlce"],
                    "max_jobs": 1,
                },
            ],
        },
        {
            "name": "this-machine",
            "descr": "one machine without a scheduler",
            "hostnames": [".*"],
            "partitions": [
                {"name": "default", "scheduler": "local", "launcher": "local", "environs": ["this"]},
            ],
        },
    ],
    "environments": [
        # `features` are what the tests ask for
        {"name": "wmlce", "modules": ["ibm-wml-ce"], "features": ["wmlce"]},
        {"name": "this", "features": ["wmlce"]},
    ],
    "general": [{"report_file": "reframe-report.json", "report_junit": "reframe-junit.xml"}],
}
