# Sourced at every start of a container, by the shell that Apptainer has built in: plain sh, no programs. It does not see
# the variables outside, which count where this sets nothing. APPTAINERENV_NAME outside counts more than this.
export PATH="/opt/ibm-wml-ce/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export CONDA_PREFIX=/opt/ibm-wml-ce CONDA_DEFAULT_ENV=ibm-wml-ce CONDA_SHLVL=1
export LANG=C.UTF-8 LC_ALL=C.UTF-8
# Of an installation outside, these would mislead what is in here.
export OPAL_PREFIX=/opt/ibm-wml-ce PMIX_PREFIX=/opt/ibm-wml-ce PRTE_PREFIX=/opt/ibm-wml-ce
# So would packages and settings for another Python. To Python, empty is the same as not set.
export PYTHONHOME= PYTHONPATH= PYTHONSTARTUP= PYTHONUSERBASE= PYTHONNOUSERSITE=1
# A folder outside need not be in here.
export TMPDIR=/tmp
# Slurm's PMIx offers munge first, which is not in here, and every rank would say so.
export PMIX_MCA_psec=native
