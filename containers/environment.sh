# Sourced at every start of a container, by the shell that Apptainer has built in and by others: plain sh, no programs.
export PATH="/opt/ibm-wml-ce/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export CONDA_PREFIX=/opt/ibm-wml-ce CONDA_DEFAULT_ENV=ibm-wml-ce
export LANG=C.UTF-8 LC_ALL=C.UTF-8

# Paths of an installation outside mean nothing in here. A site's MPI that is bound in is named by APPTAINERENV_….
unset PYTHONHOME OPAL_PREFIX PMIX_PREFIX PRTE_PREFIX
# Packages in the home folder are for other environments; PYTHONNOUSERSITE= (empty) outside lets them in.
export PYTHONNOUSERSITE="${PYTHONNOUSERSITE-1}"
[ -d "${TMPDIR:-/tmp}" ] || unset TMPDIR
# Slurm's PMIx offers munge first, which is not in here, and every rank would say so.
if [ -n "${SLURM_JOB_ID:-}" ]; then export PMIX_MCA_psec="${PMIX_MCA_psec-native}"; fi
